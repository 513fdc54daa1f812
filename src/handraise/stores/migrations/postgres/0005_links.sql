create table links (
    hash text collate "C" primary key,
    ask text collate "C" not null,
    made_for text not null,
    via text not null,
    maker text not null,
    created_at bigint not null,
    expires_at bigint not null,
    used_at bigint
);
create index links_expires on links (expires_at);
