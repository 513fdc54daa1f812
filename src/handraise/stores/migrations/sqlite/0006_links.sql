create table links (
    hash text primary key,
    ask text not null,
    made_for text not null,
    via text not null,
    maker text not null,
    created_at integer not null,
    expires_at integer not null,
    used_at integer
);
create index links_expires on links (expires_at);
