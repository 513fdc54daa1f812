create table wires (
    id text primary key,
    session text not null,
    at integer not null,
    way text not null,
    name text not null,
    ask text,
    body text not null,
    size integer not null,
    pieces integer not null
);
create index wires_session on wires (session, id);
create index wires_ask on wires (ask, id) where ask is not null;
