// Brings the questions and permissions of this terminal to a handraise desk, and the answers back. What they mean is
// decided at the desk; here they are only carried. `handraise uninstall opencode` takes this file away again.
const DESK = { url: "", token: "" }

const LONGEST_CALL = 90_000 // ms; the desk ends a held call sooner, so one that lasts longer has nobody at its end
const FIRST_PAUSE = 250 // ms between two tries; each pause is twice the one before
const LONGEST_PAUSE = 4_000
const MOST_TRIES = 10 // to report what is over; a question that is open is brought for as long as it is open
const ASKED = new Set(["question.asked", "permission.asked"])
const SETTLED = new Set(["question.replied", "question.rejected", "permission.replied"])
const ENDED = new Set(["session.idle", "session.deleted"]) // a stopped turn leaves its requests behind without a word

const pause = (ms) => new Promise((resume) => setTimeout(resume, ms).unref?.())

/** The status and the JSON of the desk's reply, or nothing where no desk answers. Never throws, never says a word. */
async function post(path, body, signal = AbortSignal.timeout(LONGEST_CALL)) {
  try {
    const reply = await fetch(`${DESK.url}/attach/opencode/${path}`, {
      method: "POST",
      headers: { authorization: `Bearer ${DESK.token}`, "content-type": "application/json" },
      body: JSON.stringify(body),
      redirect: "error",
      signal,
    })
    const text = await reply.text()
    return { status: reply.status, call: reply.status === 200 && text ? JSON.parse(text) : undefined }
  } catch {
    return undefined
  }
}

const passing = (reply) => !reply || reply.status >= 500 || reply.status === 429

async function report(path, body) {
  for (let tries = 0, ms = FIRST_PAUSE; tries < MOST_TRIES && passing(await post(path, body)); tries++) {
    await pause(ms)
    ms = Math.min(ms * 2, LONGEST_PAUSE)
  }
}

export const Handraise = async ({ client, directory }) => {
  // `opencode run` answers for itself at once, and a server that a desk started brings its questions on its own.
  const command = process.argv.slice(2).find((word) => !word.startsWith("-"))
  if (process.env.HANDRAISE_MANAGED || command === "run") return {}
  const open = new Map() // what OpenCode waits for, by its id

  // In process: a plain terminal has no port, and the `serverUrl` of a plugin is made up there.
  const opencode = async (method, options) => {
    try {
      return await client._client[method](options)
    } catch {
      return {}
    }
  }

  async function bring(request) {
    const session = await opencode("get", { url: `/session/${request.asked.properties.sessionID}` })
    const body = { ...request.asked, directory, parent: session.data?.parentID }
    if (request.over) return
    for (let ms = FIRST_PAUSE; !request.over; ) {
      const began = Date.now()
      const reply = await post("ask", body, AbortSignal.any([request.left.signal, AbortSignal.timeout(LONGEST_CALL)]))
      if (request.over) break
      if (reply?.call?.path) return answer(request, reply.call)
      if (reply?.status !== 204 && !passing(reply)) return open.delete(request.id) // from now on it is asked here alone
      if (Date.now() - began < LONGEST_PAUSE) {
        await Promise.race([pause(ms), request.leaving])
        ms = Math.min(ms * 2, LONGEST_PAUSE)
      } else ms = FIRST_PAUSE // it was held, and is brought again at once
    }
    await report("settled", { asked: body, event: request.over })
  }

  async function answer(request, { id, path, body }) {
    request.answering = true
    const { response } = await opencode("post", { url: path, body, headers: { "content-type": "application/json" } })
    open.delete(request.id)
    await report("delivered", { id, status: response?.status })
  }

  function settle(request, event) {
    if (!request || request.answering) return
    open.delete(request.id)
    request.over = event
    request.left.abort()
    request.leave()
  }

  return {
    event: async ({ event: { type, properties } }) => {
      if (ASKED.has(type) && !open.has(properties.id)) {
        const request = { id: properties.id, asked: { type, properties }, left: new AbortController() }
        request.leaving = new Promise((leave) => (request.leave = leave))
        open.set(request.id, request)
        bring(request).catch(() => open.delete(request.id)) // not awaited: nothing here waits for a desk
      } else if (SETTLED.has(type)) {
        settle(open.get(properties.requestID), { type, properties })
      } else if (ENDED.has(type)) {
        const left = [...open.values()].filter((request) => request.asked.properties.sessionID === properties.sessionID)
        for (const request of left) settle(request, { type, properties: { sessionID: properties.sessionID } })
      }
    },
  }
}
