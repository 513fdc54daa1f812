create table rules (
    id text primary key,
    place bigint not null,
    rule text not null,
    created_at bigint not null,
    created_by text not null
);
