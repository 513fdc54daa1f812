alter table events add column source text;
create index events_ask on events (ask);
create table counters (
    name text primary key,
    value integer not null
);
insert into counters values ('pruned', 0);
