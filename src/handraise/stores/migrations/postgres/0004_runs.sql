alter table sessions add column run text;
alter table sessions add column step text;
alter table orders add column reply text;

create index sessions_run on sessions (run) where run is not null;

create table workers (
    id text primary key,
    name text not null,
    lease_until bigint not null
);

create table runs (
    id text primary key,
    workflow text not null,
    file text not null,
    cwd text not null,
    input text not null,
    state text not null,
    owner text,
    epoch bigint not null,
    idle_claims bigint not null,
    cancelled bigint not null,
    asleep_until bigint,
    output text,
    error text,
    created_at bigint not null,
    created_by text not null,
    updated_at bigint not null
);
create index runs_awake on runs (created_at, id) where state = 'open' and asleep_until is null;
create index runs_asleep on runs (asleep_until) where asleep_until is not null;
create index runs_newest on runs (created_at, id);

create table trace (
    id text primary key,
    run text not null,
    type text not null,
    step text,
    at bigint not null,
    data text not null
);

create table checkpoints (
    id text primary key,
    run text not null,
    step text not null,
    input text not null,
    schema text not null,
    state text not null,
    output text,
    given_by text,
    given_via text,
    asked_at bigint not null,
    given_at bigint
);
create index checkpoints_run on checkpoints (run);
create index checkpoints_open on checkpoints (asked_at, id) where state = 'open';
