create table showings (
    id text primary key,
    ask text not null,
    channel text not null,
    state text not null,
    place text,
    error text,
    at integer not null,
    left_at integer
);
create index showings_ask on showings (ask);
create index showings_shown on showings (channel) where left_at is null;
create table leases (
    name text primary key,
    owner text not null,
    lease_until integer not null
);
create table linear_deliveries (
    id text primary key,
    channel text not null,
    body text not null,
    received_at integer not null,
    done_at integer
);
create index linear_deliveries_new on linear_deliveries (channel, received_at) where done_at is null;
create table linear_sessions (
    id text primary key,
    channel text not null,
    session text not null,
    kind text not null,
    state text not null,
    repository text,
    branch text,
    worktree text,
    created_at integer not null,
    expires_at integer not null,
    remaining integer,
    ask text,
    shown_at text,
    place integer not null,
    answers text not null,
    turns integer not null,
    mirrored text not null,
    reason text,
    ended_at integer
);
create index linear_sessions_open on linear_sessions (channel, created_at) where ended_at is null;
create table linear_activities (
    id text primary key,
    channel text not null,
    session text not null,
    seq text not null,
    body text not null,
    ask text,
    error text,
    sent_at integer
);
create index linear_activities_new on linear_activities (channel, session, seq) where sent_at is null;
