create table browsers (
    name text collate "C" primary key,
    cookie_hash text collate "C" not null unique,
    secret_hash text collate "C" not null,
    scopes text not null,
    created_at bigint not null
);
-- Browsers were tokens, and every port of their machine was sent those. They sign in again.
delete from tokens where scopes = 'admin' and name ~ '^browser-[0-9a-f]{8}$';
