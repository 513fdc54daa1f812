// The page that follows the sign-in button: keeps this browser's half of the session and goes on to the inbox.

import { keepSession } from './core/session.js';

const told = /** @type {HTMLElement} */ (document.getElementById('session'));
if (keepSession(told.dataset.secret ?? '')) location.replace('/'); // so that no history leads back to the secret
else told.hidden = false;
