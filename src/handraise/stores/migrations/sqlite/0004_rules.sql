create table rules (
    id text primary key,
    place integer not null,
    rule text not null,
    created_at integer not null,
    created_by text not null
);
