create table asks (
    seq integer primary key,
    id text not null unique,
    base text,
    owner text not null,
    worker text,
    session text not null,
    run text,
    agent text not null,
    content text not null,
    openings integer not null default 1,
    state text not null,
    asked_at integer not null,
    timeout integer,
    deadline integer,
    fallback text,
    answer text,
    delivered_at integer,
    delivery_error text,
    withdrawn_reason text
);
create index asks_open on asks (seq) where state = 'asked';
create index asks_deadline on asks (deadline) where state = 'asked' and deadline is not null;
create index asks_session on asks (session, seq);
create index asks_run on asks (run, seq) where run is not null;
create index asks_base on asks (base, seq) where base is not null;

create table events (
    cursor integer primary key,
    type text not null,
    at integer not null,
    ask integer not null references asks (seq),
    state text not null,
    asked_at integer not null,
    deadline integer,
    answer text,
    delivered_at integer,
    delivery_error text,
    withdrawn_reason text
);

create table sessions (
    id text primary key,
    agent text not null,
    parent text,
    cwd text,
    machine text,
    created_at integer not null
);

create table tokens (
    name text primary key,
    hash text not null unique,
    scopes text not null,
    created_at integer not null
);
