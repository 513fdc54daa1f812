create table wires (
    id text collate "C" primary key,
    session text collate "C" not null,
    at bigint not null,
    way text not null,
    name text not null,
    ask text collate "C",
    body text not null,
    size bigint not null,
    pieces bigint not null
);
create index wires_session on wires (session, id);
create index wires_ask on wires (ask, id) where ask is not null;
