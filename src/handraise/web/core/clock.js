// Time as it passes on the page. Deadlines are counted from what the desk said was left, never by this machine's clock.

import { signal } from '../vendor/preact.js';

export const second = signal(performance.now());
export const minute = signal(Date.now());

setInterval(() => (second.value = performance.now()), 1000);
setInterval(() => (minute.value = Date.now()), 30_000);

/** Look at the clock now, after something with a deadline came. */
export const look = () => (second.value = performance.now());
