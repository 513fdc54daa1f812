// The service worker: the page opens without the desk, and notifications can be answered. It keeps files of the page,
// this browser's half of its session, and nothing that the desk told.

const CACHE = 'handraise-page';
const SESSION = 'handraise-session'; // in a cache of its own: a worker has no other storage that is as short to use
const FRAMES = ['embed', 'frame', 'iframe', 'object'];

/** @type {ServiceWorkerGlobalScope} */
const worker = /** @type {any} */ (self);

worker.addEventListener('install', (event) => event.waitUntil(keepAll()));
worker.addEventListener('activate', (event) => event.waitUntil(worker.clients.claim()));

/** Whether a path is a file of the page. @param {string} path */
const isOfThePage = (path) => path === '/' || path === '/manifest.webmanifest' || path.startsWith('/app/');

worker.addEventListener('fetch', (event) => {
  const url = new URL(event.request.url);
  if (FRAMES.includes(event.request.destination)) return; // the desk sees who wants it there, and refuses
  if (event.request.method === 'GET' && url.origin === worker.location.origin && isOfThePage(url.pathname))
    event.respondWith(freshOrKept(url.pathname));
});

/**
 * What the desk has; without the desk, what was kept. Asked for by us, so that the cookie goes along even where a link
 * of another site led here.
 * @param {string} path
 */
async function freshOrKept(path) {
  const cache = await caches.open(CACHE);
  try {
    // Without its cookie a browser gets the page that says how to sign in, and a program an error.
    const accept = path === '/' ? 'text/html' : '*/*';
    const response = await fetch(path, { credentials: 'same-origin', cache: 'no-cache', headers: { accept } });
    if (response.ok) await cache.put(path, response.clone());
    if (response.status < 500) return response;
    return (await cache.match(path)) ?? response;
  } catch (unreachable) {
    const kept = await cache.match(path);
    if (kept) return kept;
    throw unreachable;
  }
}

worker.addEventListener('message', (event) => {
  const { kind } = event.data;
  if (kind === 'session') event.waitUntil(keepSession(event.data.secret));
  else if (kind === 'keep') event.waitUntil(keep(event.data.paths));
  else if (kind === 'notify') event.waitUntil(notify(event.data.notification));
  else if (kind === 'close') event.waitUntil(close(event.data.tags));
});

/** Keep what the shell names: its style and every module, which it preloads. */
async function keepAll() {
  const shell = await (await freshOrKept('/')).text();
  await keep([...shell.matchAll(/(?:href|src)="(\/app\/[^"]+)"/gu)].map(([, path]) => path));
  await worker.skipWaiting();
}

/** @param {string[]} paths */
const keep = (paths) => Promise.all(paths.map((path) => freshOrKept(path).catch(() => undefined)));

/** The page may be closed when a notification is answered, and a worker cannot read what pages keep. @param {string} secret */
async function keepSession(secret) {
  const cache = await caches.open(SESSION);
  await cache.put('/', new Response(secret));
}

/** Empty where there is none. */
async function sessionSecret() {
  const cache = await caches.open(SESSION);
  return (await (await cache.match('/'))?.text()) ?? '';
}

// Notifications ----------------------------------------------------------------------------------------------

/** @typedef {{title: string, body: string, tag: string, actions: {action: string, title: string}[], requests: Record<string, {path: string, body: unknown}>}} Wanted */

/** Show it, unless the person looks at the page. @param {Wanted} wanted */
async function notify({ title, body, tag, actions, requests }) {
  const windows = await worker.clients.matchAll({ type: 'window' });
  if (windows.some((window) => window.focused)) return;
  const options = { body, tag, actions, data: { tag, requests }, icon: '/app/icons/icon-192.png', badge: '/app/icons/icon-192.png' };
  await worker.registration.showNotification(title, /** @type {NotificationOptions} */ (options));
}

/** They were settled elsewhere. @param {string[]} tags */
async function close(tags) {
  for (const tag of tags) {
    for (const notification of await worker.registration.getNotifications({ tag })) notification.close();
  }
}

worker.addEventListener('notificationclick', (event) => {
  const { tag, requests } = event.notification.data;
  const request = event.action ? requests[event.action] : undefined;
  event.notification.close();
  event.waitUntil(request ? send(request, tag) : show(tag));
});

/** @param {{path: string, body: unknown}} request @param {string} tag */
async function send({ path, body }, tag) {
  const response = await fetch(path, {
    method: 'POST',
    credentials: 'same-origin',
    headers: { 'content-type': 'application/json', 'x-handraise-session': await sessionSecret() },
    body: JSON.stringify(body),
  }).catch(() => null);
  if (!response?.ok) await show(tag); // the card says what is wrong
}

/** @param {string} id of an ask */
async function show(id) {
  const target = `/#/ask/${encodeURIComponent(id)}`;
  const [window] = await worker.clients.matchAll({ type: 'window' });
  if (!window) return void (await worker.clients.openWindow(target));
  await window.focus();
  window.postMessage({ kind: 'open', hash: target.slice(1) });
}
