create table chats (
    id text primary key,
    title text not null,
    model text not null,
    state text not null,
    ask text,
    writer text,
    lease_until integer,
    version integer not null,
    created_at integer not null,
    updated_at integer not null
);
create index chats_newest on chats (updated_at, id);
create index chats_busy on chats (id) where state in ('queued', 'writing');

create table chat_messages (
    id text primary key,
    chat text not null,
    role text not null,
    state text not null,
    blocks text not null,
    raw text,
    nonce text,
    at integer not null,
    version integer not null
);
create index chat_messages_chat on chat_messages (chat, id);
create index chat_messages_nonce on chat_messages (chat, nonce) where nonce is not null;
create index chat_messages_changed on chat_messages (chat, version);
