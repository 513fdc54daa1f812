alter table sessions add column state text;
alter table sessions add column mode text;
alter table sessions add column command text;
alter table sessions add column handling text;
alter table sessions add column handle text;
alter table sessions add column worker text collate "C";
alter table sessions add column error text;
alter table sessions add column stale_after bigint;
alter table sessions add column updated_at bigint;
create index sessions_worker on sessions (worker) where worker is not null;
create index sessions_parent on sessions (parent) where parent is not null;

create table orders (
    id text collate "C" primary key,
    session text collate "C" not null,
    kind text not null,
    text text not null,
    created_at bigint not null,
    started_at bigint,
    done_at bigint
);
create index orders_undone on orders (session, id) where done_at is null;

create table messages (
    id text collate "C" primary key,
    session text collate "C" not null,
    role text not null,
    text text not null,
    extra text,
    at bigint not null
);
create index messages_session on messages (session, id);

create table grants (
    id text collate "C" primary key,
    session text collate "C" not null,
    owner text not null,
    agent text not null,
    tool text not null,
    patterns text not null,
    given_by text not null,
    created_at bigint not null
);
create index grants_session on grants (session);
