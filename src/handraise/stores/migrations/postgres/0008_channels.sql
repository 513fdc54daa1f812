create table showings (
    id text collate "C" primary key,
    ask text collate "C" not null,
    channel text not null,
    state text not null,
    place text,
    error text,
    at bigint not null,
    left_at bigint
);
create index showings_ask on showings (ask);
create index showings_shown on showings (channel) where left_at is null;
create table leases (
    name text collate "C" primary key,
    owner text not null,
    lease_until bigint not null
);
create table linear_deliveries (
    id text collate "C" primary key,
    channel text not null,
    body text not null,
    received_at bigint not null,
    done_at bigint
);
create index linear_deliveries_new on linear_deliveries (channel, received_at) where done_at is null;
create table linear_sessions (
    id text collate "C" primary key,
    channel text not null,
    session text collate "C" not null,
    kind text not null,
    state text not null,
    repository text,
    branch text,
    worktree text,
    created_at bigint not null,
    expires_at bigint not null,
    remaining bigint,
    ask text,
    shown_at text,
    place bigint not null,
    answers text not null,
    turns bigint not null,
    mirrored text not null,
    reason text,
    ended_at bigint
);
create index linear_sessions_open on linear_sessions (channel, created_at) where ended_at is null;
create table linear_activities (
    id text collate "C" primary key,
    channel text not null,
    session text collate "C" not null,
    seq text collate "C" not null,
    body text not null,
    ask text,
    error text,
    sent_at bigint
);
create index linear_activities_new on linear_activities (channel, session, seq) where sent_at is null;
