create table chats (
    id text collate "C" primary key,
    title text not null,
    model text not null,
    state text not null,
    ask text,
    writer text,
    lease_until bigint,
    version bigint not null,
    created_at bigint not null,
    updated_at bigint not null
);
create index chats_newest on chats (updated_at, id);
create index chats_busy on chats (id) where state in ('queued', 'writing');

create table chat_messages (
    id text collate "C" primary key,
    chat text collate "C" not null,
    role text not null,
    state text not null,
    blocks text not null,
    raw text,
    nonce text,
    at bigint not null,
    version bigint not null
);
create index chat_messages_chat on chat_messages (chat, id);
create index chat_messages_nonce on chat_messages (chat, nonce) where nonce is not null;
create index chat_messages_changed on chat_messages (chat, version);
