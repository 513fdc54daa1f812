// The way through several questions: the strip that says where one is, and the review before sending.

import { html, useState } from '../vendor/preact.js';
import { inert, Plain } from '../core/text.js';
import { t } from '../core/words.js';
import { entriesOf, isAnswered, isWrong } from './question_draft.js';

/** @typedef {import('../core/api.js').Ask} Ask */
/** @typedef {import('./question_draft.js').Draft} Draft */

const MOST_SHOWN = 10;
const LONGEST_NAME = 60;

/** What a question is called where there is little room. @param {Ask} ask @param {number} place */
function nameOf(ask, place) {
  const { header, question } = ask.questions[place];
  const name = header || question;
  return inert(name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME)}…` : name);
}

/** @param {{ask: Ask, draft: Draft, isInert: boolean, go: (step: number) => void}} props */
export function Steps({ ask, draft, isInert, go }) {
  const total = ask.questions.length;
  const [isAll, setAll] = useState(total <= MOST_SHOWN || draft.step >= MOST_SHOWN);
  const drawn = isAll || draft.step >= MOST_SHOWN ? ask.questions : ask.questions.slice(0, MOST_SHOWN);
  return html`<nav class="steps" aria-label=${`${t('question.steps')}: ${ask.questions.map((_, place) => nameOf(ask, place)).join(', ').slice(0, 200)}`}>
    <ol>
      ${drawn.map(
        (_, place) => html`<li key=${place}>
          <button
            type="button"
            data-step=${place}
            disabled=${isInert}
            data-done=${isAnswered(ask, draft, place) || undefined}
            aria-current=${draft.step === place ? 'step' : undefined}
            onClick=${() => go(place)}
          >
            <span class="tick" aria-hidden="true">${isAnswered(ask, draft, place) ? '✓' : place + 1}</span>
            <span class="name" dir="auto">${nameOf(ask, place)}</span>
            ${isAnswered(ask, draft, place) && html`<span class="unseen">, ${t('question.answered')}</span>`}
          </button>
        </li>`,
      )}
      ${drawn.length < total &&
      html`<li>
        <button type="button" data-action="all-steps" onClick=${() => setAll(true)}>${t('question.allSteps', { count: total })}</button>
      </li>`}
      <li>
        <button
          type="button"
          data-step="review"
          disabled=${isInert}
          aria-current=${draft.step === total ? 'step' : undefined}
          onClick=${() => go(total)}
        >
          ${t('question.review')}
        </button>
      </li>
    </ol>
  </nav>`;
}

/** Every answer, each with a way back to it. @param {{ask: Ask, draft: Draft, go: (step: number) => void}} props */
export function Review({ ask, draft, go }) {
  return html`
    <legend tabindex="-1" data-beginning class="reviewing">${t('question.review')}</legend>
    <ol class="review">
      ${ask.questions.map((question, place) => {
        const entries = entriesOf(ask, draft, place);
        const label = (/** @type {string} */ value) => question.options.find((option) => option.value === value)?.label ?? value;
        return html`<li key=${place} data-review=${place}>
          <div>
            <${Plain} as="p" class="name" text=${question.header || question.question} limit=${LONGEST_NAME} />
            ${isAnswered(ask, draft, place)
              ? entries.map((value) => html`<${Plain} as="p" text=${label(value)} limit=${500} />`)
              : html`<p class="quiet-text">${t('question.notAnswered')}</p>`}
            ${isWrong(question, draft.own[place]) && html`<p class="missing">${t('question.notNumber')}</p>`}
            ${draft.notes[place].trim() !== '' && html`<${Plain} as="p" class="note" text=${draft.notes[place]} limit=${500} />`}
          </div>
          <button type="button" class="quiet" data-action="edit" aria-label=${`${t('action.edit')}: ${nameOf(ask, place)}`} onClick=${() => go(place)}>
            ${t('action.edit')}
          </button>
        </li>`;
      })}
    </ol>
  `;
}
