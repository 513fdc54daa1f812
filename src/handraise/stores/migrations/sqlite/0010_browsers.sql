create table browsers (
    name text primary key,
    cookie_hash text not null unique,
    secret_hash text not null,
    scopes text not null,
    created_at integer not null
);
-- Browsers were tokens, and every port of their machine was sent those. They sign in again.
delete from tokens where scopes = 'admin' and length(name) = 16 and name glob 'browser-*'
    and substr(name, 9) not glob '*[^0-9a-f]*';
