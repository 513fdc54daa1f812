// Written by docs/generate_types.py from the OpenAPI document. Change it there, then `make docs`.

/** What goes back to the agent: values per question, a permission's reply, or a rejection. */
export interface Answer {
  answers: string[][] | null;
  reply: string | null;
  rejected: boolean;
  reason: string | null;
  notes: (string | null)[];
  input?: Record<string, unknown> | null;
  scope?: string | null;
  patterns?: string[] | null;
  by: string;
  via: string;
  at: string | null;
  why?: string[];
}

/** What `POST /v1/asks/{id}/answer` takes: `answers` for questions, `reply` for a permission. */
export interface AnswerBody {
  answers?: string[][] | null;
  notes?: (string | null)[];
  reply?: string | null;
  message?: string | null;
  input?: Record<string, unknown> | null;
  scope?: string | null;
  patterns?: string[] | null;
  by?: string | null;
  via?: string | null;
}

/** One moment in which an agent stopped and needs somebody. It holds questions or a permission, never both. An adapter fills the first block; the desk adds the rest. */
export interface Ask {
  id: string;
  questions: Question[];
  permission: Permission | null;
  origin: Origin;
  extra?: Record<string, unknown> | null;
  state: "asked" | "answered" | "rejected" | "withdrawn";
  asked_at: string;
  deadline: string | null;
  remaining: number | null;
  fallback: Answer | null;
  answer: Answer | null;
  delivered_at: string | null;
  delivery_error: string | null;
  withdrawn_reason: string | null;
  /** Of a permission: what it can do that people should think twice about. It leaves out nothing that it knows, and it does not know everything. */
  risks?: ("delete" | "push" | "spend" | "sandbox" | "secrets" | "privileges" | "later" | "unreadable")[];
  /** Of a permission: the commands of its line, in order, where there is more than one. */
  commands?: string[];
  /** Of a permission: why it cannot be said for certain what it does. Not there where it can be. */
  doubt?: string;
  /** Of a permission: why an answer link, a notification or a place that does not say for sure who answers can only refuse it. Not there where they can allow it. */
  only_at_desk?: string;
  /** Of a permission: what people have to see of it. It names fields of the ask. Asks of older desks have none. */
  card?: {
    /** What the agent wants: a key of the word catalogue, and what the ask does not say. */
    heading: {
      key: string;
      count?: number;
    };
    /** What it is about, in the order in which it is read. */
    parts: ("plan" | "command" | "commands" | "paths" | "url" | "diff" | "arguments" | "approved")[];
    /** The names in `permission.input` that no other part shows; all, where this is missing. */
    arguments?: string[];
    /** The names in `permission.extra.input`, which goes back to the agent with its plan. */
    approved?: string[];
    /** Places in `permission.paths` where a link leads elsewhere: see `permission.resolved`. */
    elsewhere?: number[];
    /** Of `permission.url`, where programs agree which host that names. */
    host?: string;
    /** `permission.summary` says something that no part says. It may be a lie. */
    claim?: boolean;
    /** Files are to be changed, and the agent does not show how. */
    lacks_diff?: boolean;
    /** The button of a notification may allow it. */
    notification?: boolean;
  };
}

/** What `POST /v1/asks` takes. */
export interface AskBody {
  question_policy?: "reject" | "accept-first" | "accept-recommended" | "forward" | Auto | null;
  permission_policy?: "reject" | "forward" | null;
  question_timeout?: number | null;
  on_timeout?: "accept-first" | "accept-recommended" | "reject" | null;
  id?: string | null;
  questions?: QuestionSent[];
  permission?: PermissionSent | null;
  origin?: Origin | null;
  worker?: string | null;
  ordinal?: boolean;
  extra?: Record<string, unknown> | null;
}

export interface Auto {
  auto: AutoRule[];
}

/** `match` is a part of the header or the text, in any case, or `re:` and a regular expression (RE2 syntax). */
export interface AutoRule {
  match: string;
  answers: string[];
}

/** What `POST /v1/channels/{name}/test` takes. */
export interface ChannelTestBody {
  /** In a channel that shows only what belongs to a place in it: which one. */
  where?: string;
}

/** What `POST /v1/chats` takes; with a text, the chat begins with that message. */
export interface ChatBody {
  /** A name under `[models]` in the settings of the desk. Without one, the default. */
  model?: string | null;
  /** Without one the chat is called by how its first message begins. */
  title?: string | null;
  text?: string | null;
  /** Who says it, where the token may speak for others. */
  by?: string | null;
  /** The place it is said in. */
  via?: string | null;
}

/** What `POST /v1/chats/{chat}/messages` takes. The same nonce again is the same message. */
export interface ChatMessageBody {
  text: string;
  /** Any text of yours; the same one again is the same message, so a send may be repeated. */
  nonce?: string | null;
  /** Who says it, where the token may speak for others. */
  by?: string | null;
  /** The place it is said in. */
  via?: string | null;
}

export interface ChatTitleBody {
  title: string;
}

/** What `POST /v1/checkpoints/{checkpoint}` takes. */
export interface CheckpointBody {
  /** What the checkpoint's `schema` wants. */
  output: unknown;
  /** Who gave it, where the token may speak for others. */
  by?: string | null;
  /** The place it was given in. */
  via?: string | null;
}

export interface DeliveriesBody {
  deliveries: Delivery[];
}

export interface Delivery {
  id: string;
  error?: string | null;
}

/** What `POST /v1/leases` takes. */
export interface LeaseBody {
  /** The `worker` of the asks that it waits for. */
  worker: string;
  /** How long it may say nothing before its open asks are withdrawn. */
  seconds: number;
}

/** What `POST /v1/asks/{id}/link` takes. */
export interface LinkBody {
  by?: string | null;
  via?: string | null;
  expires_in?: number | null;
}

/** What a person said in the agent's own terminal, as the agent learned it. */
export interface LocalAnswer {
  answers?: string[][] | null;
  notes?: (string | null)[];
  reply?: string | null;
  message?: string | null;
  input?: Record<string, unknown> | null;
  scope?: string | null;
  patterns?: string[] | null;
  by?: string | null;
  via?: string | null;
  rejected?: boolean;
}

/** One choice. `value` is what goes back to the agent; where it gave none, that is the label. */
export interface Option {
  label: string;
  description: string;
  value: string;
  preview?: string;
  recommended: boolean;
  extra?: Record<string, unknown>;
}

/** One choice. `value` is what goes back to the agent; where it gave none, that is the label. */
export interface OptionSent {
  label: string;
  description?: string;
  value?: string;
  preview?: string | null;
  recommended?: boolean;
  extra?: Record<string, unknown> | null;
}

/** Who asks, and from where. */
export interface Origin {
  agent: string;
  session: string;
  run?: string;
  step?: string;
  parent?: string;
  cwd?: string;
  machine?: string;
  extra?: Record<string, unknown>;
}

/** A part of a project as a person saw it. */
export interface PartBody {
  /** As `GET /v1/trust` told it. */
  name: string;
  /** As `GET /v1/trust` told it: what the person saw. */
  fingerprint: string;
}

/** What an agent wants to do. A plan that wants approval is `kind="plan"`. */
export interface Permission {
  tool: string;
  summary: string;
  kind: string;
  command?: string;
  paths: string[];
  diff?: string;
  cwd?: string;
  url?: string;
  input?: Record<string, unknown>;
  replies: string[];
  scopes: Scope[];
  editable: boolean;
  resolved?: string[];
  resolved_cwd?: string;
  extra?: Record<string, unknown>;
}

/** What an agent wants to do. A plan that wants approval is `kind="plan"`. */
export interface PermissionSent {
  tool: string;
  summary?: string;
  kind?: string;
  command?: string | null;
  paths?: string[];
  diff?: string | null;
  cwd?: string | null;
  url?: string | null;
  input?: Record<string, unknown> | null;
  replies?: string[];
  scopes?: ScopeSent[];
  editable?: boolean;
  resolved?: string[] | null;
  resolved_cwd?: string | null;
  extra?: Record<string, unknown> | null;
}

export interface PromptBody {
  prompt: string;
}

/** One question of an ask. Options whose values repeat get unique ones (`label#2`), so that an answer names exactly one of them. */
export interface Question {
  question: string;
  options: Option[];
  header: string;
  multiple: boolean;
  custom: boolean;
  kind: "choice" | "text" | "number";
  extra?: Record<string, unknown>;
}

/** One question of an ask. Options whose values repeat get unique ones (`label#2`), so that an answer names exactly one of them. */
export interface QuestionSent {
  question: string;
  options?: OptionSent[];
  header?: string;
  multiple?: boolean;
  custom?: boolean;
  kind?: "choice" | "text" | "number";
  extra?: Record<string, unknown> | null;
}

export interface RejectBody {
  reason?: string | null;
  by?: string | null;
  via?: string | null;
}

/** What `POST /v1/runs/{run}/retry` takes. */
export interface RetryBody {
  /** The step from which everything is done again. Without one, what did not succeed. */
  from?: string | null;
  /** Only say what would be done. */
  dry_run?: boolean;
}

/** What `POST /v1/rules` takes: a rule as in `[[rules]]` of a settings file. */
export interface RuleBody {
  tool: string;
  action: "allow" | "reject" | "ask" | "delegate";
  matches?: Record<string, string | boolean | (string | boolean)[]>;
  agent?: string | null;
  context?: "thread" | "subagent" | null;
  message?: string | null;
  to?: string[];
  timeout?: number | null;
  first?: boolean;
}

/** What `POST /v1/rules/test` takes: a call as an agent might make it. */
export interface RuleTestBody {
  tool: string;
  arguments?: Record<string, unknown>;
  agent?: string;
  cwd?: string | null;
  context?: "thread" | "subagent";
}

/** What `POST /v1/runs` takes. */
export interface RunBody {
  workflow: string;
  /** What the workflow takes, at most 1 MiB of it. Without one, an empty object. */
  input?: unknown;
  /** A folder on the machine of the desk: where the workflow is looked for, and where it runs. Without one, that of the desk. */
  cwd?: string | null;
}

/** How far an `always` reaches, as the agent offers it. */
export interface Scope {
  id: string;
  label: string;
  patterns: string[];
  /** The desk keeps it as rules for the session and its subagents, and the agent is only ever told `once`. A pattern that no rule can say for certain is not kept. */
  by_desk?: boolean;
  extra?: Record<string, unknown>;
}

/** How far an `always` reaches, as the agent offers it. */
export interface ScopeSent {
  id: string;
  label?: string;
  patterns?: string[];
  /** The desk keeps it as rules for the session and its subagents, and the agent is only ever told `once`. A pattern that no rule can say for certain is not kept. */
  by_desk?: boolean | null;
  extra?: Record<string, unknown> | null;
}

/** What `POST /v1/sessions` takes. */
export interface SessionBody {
  question_policy?: "reject" | "accept-first" | "accept-recommended" | "forward" | Auto | null;
  permission_policy?: "reject" | "forward" | null;
  question_timeout?: number | null;
  on_timeout?: "accept-first" | "accept-recommended" | "reject" | null;
  agent: string;
  prompt: string;
  /** A folder on the machine of the desk that starts it. */
  cwd?: string | null;
  /** What it may do without asking. Without one its own configuration decides. */
  mode?: "default" | "accept-edits" | "bypass" | "plan" | "read-only" | "workspace-write" | "full-access" | null;
  /** What to run, for the agent `acp`: a program that speaks ACP, and its arguments. */
  command?: string[];
  /** Makes it safe to repeat: the same id with the same content is the same session. */
  id?: string | null;
  /** Seconds without a sign of life and without an open ask after which a turn is stopped. */
  stale_after?: number | null;
}

/** What `POST /v1/asks/{id}/showings` takes: what became of it in a channel, or that nothing is left to do there. */
export interface ShowingBody {
  channel: string;
  state?: "sent" | "shown" | "failed" | null;
  /** The channel's own word for where it is shown, to find it again. */
  place?: string | null;
  error?: string | null;
  /** It says there how it ended, or is gone: nothing is left to do. */
  left?: boolean;
}

export interface TokenBody {
  name: string;
  scopes: ("ask" | "answer" | "admin")[];
}

/** What `POST /v1/trust` takes. */
export interface TrustBody {
  /** A folder of the project, on the machine of the desk. */
  cwd: string;
  parts: PartBody[];
}

export interface WithdrawBody {
  reason?: string | null;
  /** What a person said in the agent's own terminal. One that does not fit is a withdrawal. Its `by` is not read: it is `agent`. */
  answer?: LocalAnswer | null;
}

export interface AcpMessage {
  jsonrpc: "2.0";
  id?: string | number;
  method?: string;
  params?: Record<string, unknown> | unknown[];
  result?: unknown;
  error?: {
    code: number;
  };
}

export interface AcpServer {
  serverId: string;
  agent: string;
  /** Milliseconds since 1970. */
  createdAtMs: number;
  /** The desk's session that its asks belong to. */
  session: string;
  state: "starting" | "running" | "ended";
  /** Negative for the signal that ended it. */
  exitCode: number | null;
  /** The number of the newest message. */
  lastEventId: number;
}

export interface AcpServers {
  servers: AcpServer[];
}

export interface AgentQuestion {
  id: string;
  session_id: string;
  step_id: string;
  questions: {
    question: string;
    header: string;
    options: {
      label: string;
      description: string;
    }[];
    multiple: boolean;
    custom: boolean;
  }[];
  asked_at: string;
}

export interface Agents {
  agents: Capabilities[];
}

export interface AnswerLink {
  url: string;
  expires_at: string;
}

export interface Asks {
  asks: Ask[];
  next?: string;
}

export interface Audit {
  lines: AuditLine[];
  next?: string;
}

export interface AuditLine {
  /** Of the event it was told with. */
  cursor: number;
  /** When it was decided. */
  at: string;
  /** What was decided. */
  decision: "answered" | "rejected" | "withdrawn" | "kept_waiting";
  /** Who or what did. */
  decided_by: "person" | "policy" | "timeout" | "agent";
  /** The name that the decision carries. Programs of an admin may say another than theirs. */
  by: string | null;
  /** Through what: `http`, `cli`, `terminal`, `sdk`, `opencode`, `policy`, … */
  via: string | null;
  /** How sure it is who decided: `shared` where others could have been it too. Null where nobody did. */
  identity: "strong" | "shared" | null;
  /** Name of the token it came with; null where no call was made. */
  token: string | null;
  /** Where the call came from, as the desk saw it: behind a proxy, the proxy. */
  address: string | null;
  /** Id of the ask. */
  ask: string;
  /** What kind of ask. */
  kind: "question" | "permission" | "plan";
  /** What was asked, or was to be done, on one line; hidden characters are spelled out. */
  title: string;
  /** Who asked. */
  agent: string;
  /** In which session. */
  session: string;
  /** In which run. */
  run: string | null;
  /** In which step of it. */
  step: string | null;
  /** In which folder. */
  cwd: string | null;
  /** On which machine. */
  machine: string | null;
  /** Values given, a list per question. */
  answers: string[][] | null;
  /** What a permission got: `once`, `always`, `reject`. */
  reply: string | null;
  /** How far an `always` reaches. */
  scope: string | null;
  /** What an `always` was narrowed to. */
  patterns: string[] | null;
  /** What the tool gets instead, where it was edited. */
  input: Record<string, unknown> | null;
  /** Why it was rejected or withdrawn, or what was said with a reply. */
  reason: string | null;
  /** What was said beside the answers. */
  notes: (string | null)[] | null;
  /** How policy came to it: rules, the timeout. */
  why: string[] | null;
}

export interface Capabilities {
  agent: string;
  installed: boolean;
  version: string | null;
  /** The version that was run with this release of handraise, if any. */
  driven: string | null;
  /** Where it is. */
  program: string | null;
  questions: boolean;
  permissions: boolean;
  several_questions: boolean;
  multi_select: boolean;
  free_text: boolean;
  notes: boolean;
  edits: boolean;
  plans: boolean;
  subagents: boolean;
  resume: boolean;
  attach: boolean;
  modes: string[];
  /** The fields that were asked of the running program. */
  checked: string[];
  /** Why it cannot be used here, and what to do. */
  problem: string | null;
}

export interface Channel {
  /** As the settings call it. */
  name: string;
  kind: string;
  /** `elsewhere` where another desk of the database runs it, or none can. */
  state: "running" | "elsewhere" | "broken";
  /** Why it is broken. */
  trouble: string | null;
  /** Null where it cannot be made. */
  reach: Reach | null;
  /** With `examine`: what is wrong, and what to do. */
  problems?: string[];
}

export interface ChannelTest {
  /** The id of the ask. */
  ask: string;
}

export interface Channels {
  channels: Channel[];
}

export interface Chat {
  id: string;
  title: string;
  /** A name under `[models]` in the settings. */
  model: string;
  /** `writing` a reply, also one that is only wanted yet; `asking` while its question waits. */
  state: "idle" | "writing" | "asking";
  /** The ask of the question that waits. */
  ask: string | null;
  /** It grows with every change. Give it as `since` to read what is newer. */
  version: number;
  created_at: string;
  updated_at: string;
  messages: ChatMessage[];
}

export interface ChatBlock {
  /** `content` and `reasoning_content` are text, `tool_call` is a tool that was used, `error` says what went wrong, `action` is something that a person does. Newer desks may tell more of them: show what you do not know as a plain line. */
  type: string;
  /** What people read: text, an error, a question. */
  content?: string;
  /** `success`; `loading` and `error` of a tool; `pending` and `denied` of an action. */
  status?: string;
  /** Of a tool: `params` is JSON, `response` what it said, cut to 4,000 characters. */
  tool_call?: {
    id: string;
    name: string;
    params: string;
    response?: string;
  };
  /** Of an action. `question_request` is a question. */
  action_type?: string;
  /** Of an action. That of a question is a ChatQuestion. Of an error about a question that was not allowed: `violation`, a key of our catalogue, and what is filled in. */
  extra?: Record<string, unknown>;
}

export interface ChatMessage {
  /** Ids sort in the order in which it was said. */
  id: string;
  role: "user" | "assistant";
  /** One that is `replaced` does not count any more: its reply was written anew. */
  state: "done" | "writing" | "stopped" | "failed" | "replaced";
  blocks: ChatBlock[];
  at: string;
  /** The chat's, when it changed last. */
  version: number;
}

export interface ChatQuestion {
  /** As long as it waits. */
  needsUserAction: boolean;
  questionHeader?: string;
  questionText: string;
  questionOptions: {
    label: string;
    description?: string;
  }[];
  questionMultiple: boolean;
  /** Whether a card takes own words. A message always does. */
  questionCustom: boolean;
  questionResolution: "asked" | "replied" | "rejected";
  /** What was answered, in full. */
  answerText?: string;
  /** The message that a person wrote instead of choosing. */
  answerMessageId?: string;
  /** The ask through which it is answered or rejected. */
  askId: string;
  /** What the model called the question. */
  toolCallId: string;
}

export interface Chats {
  chats: ListedChat[];
  models: {
    name: string;
    api: "openai" | "anthropic";
    model: string;
  }[];
  /** The one that a chat has unless it names another. */
  model: string | null;
}

export interface Checkpoint {
  id: string;
  run: string;
  workflow: string;
  cwd: string;
  step: string;
  state: "open" | "given" | "withdrawn";
  /** What people are shown. */
  input: string;
  /** JSON Schema of what they have to give. */
  schema: Record<string, unknown> | boolean;
  /** What was given. */
  output: unknown;
  by: string | null;
  via: string | null;
  asked_at: string;
}

export interface Checkpoints {
  checkpoints: Checkpoint[];
  next?: string;
}

export interface Cursor {
  cursor: number;
}

export type Document = Record<string, unknown>;

export interface Down {
  error: "store_failed";
  message: string;
  status: "down";
  version: string;
  problems: ("database_away" | "write_failed" | "not_listening" | "database_slow" | "loop_lag")[];
}

export interface Draft {
  type: "draft";
  chat: string;
  /** The id of the reply that grows. */
  message: string;
  /** Which of its blocks, from 0. */
  block: number;
  /** How long the text was before, in UTF-16 code units. Append where yours is as long, leave out what you have, and read the chat where something is missing. */
  offset: number;
  text: string;
}

export interface Event {
  /** Newer desks may tell more of them. */
  type: string;
  at: string;
  ask: Ask;
}

export interface Health {
  status: "ok" | "degraded";
  version: string;
  problems: ("database_away" | "write_failed" | "not_listening" | "database_slow" | "loop_lag")[];
}

export interface Hint {
  type: "changed";
  at: string;
  /** Of these something may have changed. The first hint of a stream names all you asked for. */
  what: ("chats" | "checkpoints" | "runs" | "sessions" | "showings")[];
}

export interface Lease {
  worker: string;
  seconds: number;
}

export interface ListedChat {
  id: string;
  title: string;
  /** A name under `[models]` in the settings. */
  model: string;
  /** `writing` a reply, also one that is only wanted yet; `asking` while its question waits. */
  state: "idle" | "writing" | "asking";
  /** The ask of the question that waits. */
  ask: string | null;
  /** It grows with every change. Give it as `since` to read what is newer. */
  version: number;
  created_at: string;
  updated_at: string;
}

export interface ListedRun {
  id: string;
  workflow: string;
  /** `waiting` is for a person; `parked` cannot go on as it is, and says why in `error`. */
  state: "running" | "waiting" | "done" | "failed" | "cancelled" | "parked";
  error: string | null;
  /** Where the workflow was found. */
  file: string;
  cwd: string;
  created_at: string;
  /** Name of the token. */
  created_by: string;
  updated_at: string;
  open_asks: number;
  open_checkpoints: number;
}

export type McpError = {
  jsonrpc: string;
  error: {
    code: number;
    message: string;
  };
} | BadRequest;

export interface McpMessage {
  jsonrpc: "2.0";
  id?: string | number;
  method: string;
  params?: Record<string, unknown>;
}

export interface Message {
  /** Ids sort in the order in which it was said. */
  id: string;
  /** A `notice` is the desk's own. */
  role: "person" | "agent" | "tool" | "notice";
  text: string;
  at: string;
  /** Of a tool: its name and input. Of a notice about a turn that did not reach its end: `turn`, which is `aborted` or `failed`. */
  extra?: Record<string, unknown>;
}

export interface Messages {
  messages: Message[];
  /** Only where there are more: give it as `after` to read on, or as `before` if you did. */
  next?: string;
}

export interface NewToken {
  name: string;
  scopes: ("ask" | "answer" | "admin")[];
  token: string;
}

export interface OpenCodeAnswers {
  answers: string[][];
}

export interface OpenCodeBadRequest {
  name: "BadRequest";
  data: Record<string, unknown>;
}

export type OpenCodeNotFound = {
  _tag: string;
  requestID: string;
  message: string;
} | NotFound;

export interface OpenCodeReply {
  reply: "once" | "always" | "reject";
  message?: string | null;
}

export type OpenCodeRequests = {
  id: string;
  sessionID: string;
}[];

export interface OpenCodeResponse {
  response: "once" | "always" | "reject";
}

export interface Part {
  /** What it is called in the project, such as `rules`. */
  name: string;
  kind: "agents" | "policy" | "rules" | "workflow";
  /** The folder of the project. */
  project: string;
  /** `changed` is one that was trusted before. Only what is `trusted` is used. */
  state: "trusted" | "changed" | "new";
  /** What it would do; of a changed one, what changed. */
  lines: string[];
  /** Why nobody can trust it, and what helps. */
  problems: string[];
  /** Files of other users, who can change them. */
  owners: string[];
  /** Stands for what is shown. Null if nobody can trust it. */
  fingerprint: string | null;
}

export interface Places {
  places: Record<string, string>;
}

export interface Proof {
  proof: string;
}

export interface Pruned {
  type: "pruned";
  at: string;
  /** The cursor of the last event that is gone, and the `id` of the frame. */
  through: number;
  message: string;
}

export interface QuestionEvent {
  type: "question.requested" | "question.resolved";
  session_id: string;
  at: string;
  question_id: string;
  prompt: string;
  options: string[];
  response: string | null;
  status: "requested" | "answered" | "rejected";
}

export interface Reach {
  /** Choices that it shows as controls of its own; 0: people read them and write. */
  options: number;
  /** With a line under each. */
  describes: boolean;
  /** Several of them at once. */
  multiple: boolean;
  /** Own words in place. */
  text: boolean;
  /** What was posted is rewritten once it is settled. */
  edits: boolean;
  /** It calls the desk, which must be reachable from there. */
  needs_address: boolean;
  /** Seconds within which its calls must be answered. */
  acknowledge: number | null;
  /** So it runs where a worker is. */
  starts_agents: boolean;
  /** Characters of one message. */
  longest: number;
  /** Whether it says which person answers, or only that somebody did. */
  identity: "strong" | "shared";
}

export interface Received {
  received: true;
}

export interface Reported {
  reported: number;
  unknown: string[];
}

export interface Retried {
  id: string;
  workflow: string;
  /** `waiting` is for a person; `parked` cannot go on as it is, and says why in `error`. */
  state: "running" | "waiting" | "done" | "failed" | "cancelled" | "parked";
  error: string | null;
  /** Where the workflow was found. */
  file: string;
  cwd: string;
  created_at: string;
  /** Name of the token. */
  created_by: string;
  updated_at: string;
  open_asks: number;
  open_checkpoints: number;
  input: unknown;
  /** What its last step gave. */
  output: unknown;
  /** Steps that were begun before and are done again. */
  again: string[];
  /** Steps that come after them, for the first time. */
  then?: string[];
}

export interface Rule {
  /** Of one that is kept at the desk. */
  id?: string;
  /** Where it stands, as in `handraise.toml:12` or `desk:1f3a9c2e`. */
  source: string;
  tool: string;
  action: "allow" | "reject" | "ask" | "delegate";
  /** By argument: a pattern, a list of which any has to fit, or a flag. */
  matches?: Record<string, unknown>;
  agent?: string;
  context?: "thread" | "subagent";
  message?: string;
  to?: string[];
  timeout?: number;
  /** It holds for this session and its subagents: somebody said `always` there. */
  session?: string;
  /** Who said that. */
  by?: string;
  /** Why it can never match. */
  never?: string;
  /** What it allows that its author may not see. */
  warnings?: string[];
}

export interface RuleTest {
  action: "allow" | "reject" | "ask" | "delegate";
  rule: Rule | null;
  why: string[];
  problems: string[];
}

export interface Rules {
  rules: Rule[];
  untrusted: Rule[];
  problems: string[];
}

export interface Run {
  id: string;
  workflow: string;
  /** `waiting` is for a person; `parked` cannot go on as it is, and says why in `error`. */
  state: "running" | "waiting" | "done" | "failed" | "cancelled" | "parked";
  error: string | null;
  /** Where the workflow was found. */
  file: string;
  cwd: string;
  created_at: string;
  /** Name of the token. */
  created_by: string;
  updated_at: string;
  open_asks: number;
  open_checkpoints: number;
  input: unknown;
  /** What its last step gave. */
  output: unknown;
}

export interface RunbookAnswer {
  answers?: string[][];
  reject?: boolean;
}

export interface RunbookAnswered {
  status: "answered";
}

export interface RunbookRefusal {
  error: string;
}

export interface RunbookRun {
  run_id: string;
  workflow_id: string;
  status: "running" | "success" | "failure" | "cancelled";
  input: unknown;
  output?: unknown;
  error?: string | null;
  started_at: string;
  completed_at?: string;
  pending_checkpoints: string[];
  pending_questions: AgentQuestion[];
}

export interface Runs {
  runs: ListedRun[];
}

export interface Session {
  id: string;
  agent: string;
  /** `waiting` is for a person; `failed` says why in `error` and takes another prompt; `done` takes none. */
  state: "running" | "waiting" | "idle" | "failed" | "done";
  /** It was started here, so it can be steered from here. */
  managed: boolean;
  /** Of a subagent: the session that it works for. */
  parent: string | null;
  cwd: string | null;
  machine: string | null;
  /** The run of a workflow that started it. */
  run: string | null;
  /** And the step of that run. */
  step: string | null;
  mode: "default" | "accept-edits" | "bypass" | "plan" | "read-only" | "workspace-write" | "full-access" | null;
  /** Of the agent `acp`: what is run, where the settings do not say it. */
  command: string[] | null;
  error: string | null;
  created_at: string;
  updated_at: string;
  /** Its own and those of its subagents. */
  open_asks: number;
}

export interface Sessions {
  sessions: Session[];
}

export interface Showing {
  channel: string;
  /** `shown` where the place says that somebody saw it. */
  state: "sent" | "shown" | "failed";
  /** Why it failed. */
  error: string | null;
  at: string;
}

export interface Showings {
  showings: Showing[];
}

export interface SignInLink {
  url: string;
}

export interface Token {
  name: string;
  scopes: ("ask" | "answer" | "admin")[];
  created_at: string;
}

export interface Tokens {
  tokens: Token[];
}

export interface Trace {
  events: TraceEvent[];
  /** Give it as `after` to read on. */
  next: string;
  /** Of the run, when it was looked at. */
  state: "running" | "waiting" | "done" | "failed" | "cancelled" | "parked";
}

export interface TraceEvent {
  id: string;
  /** More are in [events](events.md#the-trace-of-a-run). */
  type: string;
  run_id: string;
  step_id?: string | null;
  session_id?: string;
  /** Of `agent_question_asked`. */
  question?: AgentQuestion;
  /** Of the other events about a question. */
  question_id?: string;
  /** Of `agent_question_answered`: labels, a list per question. */
  answers?: string[][];
  /** Of `agent_permission_asked`. */
  permission?: Record<string, unknown>;
  /** Of the other events about a permission. */
  permission_id?: string;
  /** Of `agent_permission_answered`: `once`, `always` or `reject`. */
  reply?: string;
  reason?: string | null;
  by?: string | null;
  /** Of an answer that policy gave: the rules that decided or were skipped. */
  why?: string[];
  checkpoint_id?: string;
  attempt?: number;
  /** Of a step. */
  kind?: string;
  /** Of `step_started` of a shell step: what is run. */
  command?: string;
  /** Of `run_started` and `steps_changed`: what stands after what. Each has an `id` and a `kind`, or `branches` that run at the same time, which are lists of the same. */
  steps?: Record<string, unknown>[];
  /** Of a step or a run that is done. */
  output?: unknown;
  error?: string | null;
  timestamp: string;
}

export type True = true;

export interface Trust {
  cwd: string | null;
  parts: Part[];
  /** Files of workflows that cannot be read. */
  problems: string[];
  /** All that are trusted on this machine. */
  projects: TrustedProject[];
}

export interface TrustedProject {
  project: string;
  parts: string[];
}

export interface WaitingShowings {
  showings: {
    channel: string;
    /** `shown` where the place says that somebody saw it. */
    state: "sent" | "shown" | "failed";
    /** Why it failed. */
    error: string | null;
    at: string;
    ask: string;
  }[];
}

export interface Wire {
  id: string;
  at: string;
  /** From the agent, or to it. */
  way: "in" | "out";
  /** What the agent's protocol calls it; empty where it has no name for it. */
  name: string;
  /** The ask that it is, or whose answer it carries. */
  ask: string | null;
  /** As it was, but for secrets and for what is too long. */
  body: unknown;
  /** Its characters, before it was cut. */
  size: number;
  /** How many in a row it stands for; the body is that of the last one. */
  pieces: number;
}

export interface Wires {
  wire: Wire[];
  /** Whether this desk keeps such messages. */
  recording: boolean;
  /** With `ask=`: the ask, without secrets too, or null where there is none. */
  ask?: Ask | null;
  next?: string;
}

export interface Workflow {
  name: string;
  description: string;
  file: string;
  steps: {
    id: string;
    kind: "agent" | "checkpoint" | "shell" | "function";
  }[];
  /** JSON Schema of what a run begins with. */
  input: Record<string, unknown> | null;
  /** Why the file cannot be loaded; then `name` is the file's. */
  problem?: string;
  /** With `problem`: nobody trusted it as it is now. */
  untrusted?: boolean;
}

export interface Workflows {
  workflows: Workflow[];
}

export interface AcpDiffers {
  error: "acp_differs";
  message: string;
  id: string;
  agent: string;
}

export interface AcpEnded {
  error: "acp_ended";
  message: string;
  id: string;
  agent: string;
}

export interface AcpNotFound {
  error: "acp_not_found";
  message: string;
  id: string;
}

export interface AlreadyAnswered {
  error: "already_answered";
  message: string;
  id: string;
  by: string;
  via: string;
  at: string;
  answer: Answer;
}

export interface AnswerDoesNotFit {
  error: "answer_does_not_fit";
  message: string;
  problems: {
    question: number | null;
    problem: string;
  }[];
}

export interface AskDiffers {
  error: "ask_differs";
  message: string;
  id: string;
}

export interface AskDoesNotFit {
  error: "ask_does_not_fit";
  message: string;
  problems: {
    at: string;
    problem: string;
  }[];
}

export interface AskNotFound {
  error: "ask_not_found";
  message: string;
  id: string;
}

export interface AskWithdrawn {
  error: "ask_withdrawn";
  message: string;
  id: string;
  reason: string | null;
}

export interface BadCall {
  error: "bad_call";
  message: string;
}

export interface BadRequest {
  error: "bad_request";
  message: string;
}

export interface ChatBusy {
  error: "chat_busy";
  message: string;
  id: string;
}

export interface ChatNotFound {
  error: "chat_not_found";
  message: string;
  id: string;
}

export interface CheckpointNotFound {
  error: "checkpoint_not_found";
  message: string;
  id: string;
}

export interface ExtraMissing {
  error: "extra_missing";
  message: string;
}

export interface Forbidden {
  error: "forbidden";
  message: string;
  scope?: string;
  token?: string;
  host?: string;
  origin?: string;
}

export interface InputDoesNotFit {
  error: "input_does_not_fit";
  message: string;
  problems: {
    at: string;
    problem: string;
  }[];
}

export interface MessagesGone {
  error: "messages_gone";
  message: string;
  after: number;
  first: number;
  last: number;
}

export interface NotFound {
  error: "not_found";
  message: string;
}

export interface NothingToDeliver {
  error: "nothing_to_deliver";
  message: string;
  id: string;
}

export interface OutputDoesNotFit {
  error: "output_does_not_fit";
  message: string;
  problems: {
    at: string;
    problem: string;
  }[];
}

export interface Overloaded {
  error: "overloaded";
  message: string;
}

export interface PartChanged {
  error: "part_changed";
  message: string;
  name: string;
}

export interface PluginNotFound {
  error: "plugin_not_found";
  message: string;
  family: string;
  name: string;
  names: string[];
}

export interface ProcessFailed {
  error: "process_failed";
  message: string;
  exit_code?: number | null;
}

export interface RequestAnswered {
  error: "request_answered";
  message: string;
  id: string | number;
  by: string;
}

export interface RequestNotFound {
  error: "request_not_found";
  message: string;
  id: string | number;
}

export interface RuleNotFound {
  error: "rule_not_found";
  message: string;
  id: string;
}

export interface RunEnded {
  error: "run_ended";
  message: string;
  id: string;
  state: string;
}

export interface RunNotFound {
  error: "run_not_found";
  message: string;
  id: string;
}

export interface SessionDiffers {
  error: "session_differs";
  message: string;
  id: string;
}

export interface SessionEnded {
  error: "session_ended";
  message: string;
  id: string;
  state: string;
}

export interface SessionNotFound {
  error: "session_not_found";
  message: string;
  id: string;
}

export interface Settings {
  error: "settings";
  message: string;
}

export interface StoreFailed {
  error: "store_failed";
  message: string;
}

export interface TooLarge {
  error: "too_large";
  message: string;
}

export interface Unauthorized {
  error: "unauthorized";
  message: string;
}

export interface WorkflowBroken {
  error: "workflow_broken";
  message: string;
}

export interface WorkflowNotFound {
  error: "workflow_not_found";
  message: string;
  name: string;
  known: string[];
}

export interface WorkflowNotTrusted {
  error: "workflow_not_trusted";
  message: string;
  file?: string;
}

/** What the desk answers where it refuses; `error` says which. */
export type Refusal =
  | AcpDiffers
  | AcpEnded
  | AcpNotFound
  | AlreadyAnswered
  | AnswerDoesNotFit
  | AskDiffers
  | AskDoesNotFit
  | AskNotFound
  | AskWithdrawn
  | BadCall
  | BadRequest
  | ChatBusy
  | ChatNotFound
  | CheckpointNotFound
  | ExtraMissing
  | Forbidden
  | InputDoesNotFit
  | MessagesGone
  | NotFound
  | NothingToDeliver
  | OutputDoesNotFit
  | Overloaded
  | PartChanged
  | PluginNotFound
  | ProcessFailed
  | RequestAnswered
  | RequestNotFound
  | RuleNotFound
  | RunEnded
  | RunNotFound
  | SessionDiffers
  | SessionEnded
  | SessionNotFound
  | Settings
  | StoreFailed
  | TooLarge
  | Unauthorized
  | WorkflowBroken
  | WorkflowNotFound
  | WorkflowNotTrusted;
