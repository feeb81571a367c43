// The page of a Paceline server: a chat whose tokens are coloured by origin, and live figures from /metrics.
"use strict";

const at = id => document.getElementById(id);
const make = (name, text = "", kind = "") => {
  const element = document.createElement(name);
  element.textContent = text;
  element.className = kind;
  return element;
};
const headers = () => (at("key").value ? { Authorization: `Bearer ${at("key").value}` } : {});
const messages = [];
let running = null;

// ---- chat ----

async function* eventsOf(body, signal) {
  const answer = await fetch("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers() },
    body: JSON.stringify(body),
    signal,
  });
  if (!answer.ok) throw new Error((await answer.json()).error.message);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const frames = (held + value).split("\n\n");
    held = frames.pop();
    for (const frame of frames) {
      if (frame.startsWith("data: {")) yield JSON.parse(frame.slice(6));
    }
  }
}

async function streamInto(reply, extra, signal) {
  const text = reply.appendChild(make("div", "", "text"));
  const note = reply.appendChild(make("div", "", "note"));
  const body = {
    messages,
    stream: true,
    include_token_origin: true,
    temperature: Number(at("temperature").value),
    max_tokens: Number(at("tokens").value),
    ...extra,
  };
  const began = performance.now();
  let whole = "";
  for await (const event of eventsOf(body, signal)) {
    if (event.error) throw new Error(event.error.message);
    const choice = event.choices[0];
    for (const token of choice?.token_origins ?? []) {
      whole += token.text;
      const piece = make("span", token.text, token.origin);
      piece.title = token.origin;
      text.append(piece);
    }
    for (const word of choice?.rejected_draft_tokens ?? []) text.append(make("s", word, "rejected"));
    at("turns").scrollTop = at("turns").scrollHeight;
    if (event.metrics) note.textContent = summary(event.metrics, (performance.now() - began) / 1000);
  }
  return whole;
}

function summary(metrics, seconds) {
  const spec = metrics.speculative_decoding;
  const tokens = Math.round(spec.tokens_per_step * spec.num_verify_steps);
  return `${tokens} tokens in ${seconds.toFixed(2)} s · ${(tokens / seconds).toFixed(1)} tokens/s · ` +
    `${spec.tokens_per_step.toFixed(2)} per step · ${(100 * spec.draft_acceptance_rate).toFixed(0)} % of ` +
    `${spec.num_draft_tokens} drafts kept`;
}

function turn(title, text = "") {
  const element = at("turns").appendChild(make("div", "", "turn"));
  element.append(make("h2", title));
  if (text) element.append(make("div", text, "text"));
  return element;
}

async function ask(question) {
  messages.push({ role: "user", content: question });
  turn("you", question);
  const replies = turn("model").appendChild(make("div", "", "replies"));
  running = new AbortController();
  at("stop").disabled = false;
  const column = title => {
    const reply = replies.appendChild(make("div", "", "reply"));
    if (at("beside").checked) reply.append(make("h2", title));
    return reply;
  };
  try {
    const first = column("speculative");
    const beside = at("beside").checked ? column("plain") : null;
    const whole = await streamInto(first, {}, running.signal);
    // One after the other: beside each other they would share the machine, and neither time would mean a thing.
    if (beside) await streamInto(beside, { speculative: { enabled: false } }, running.signal);
    messages.push({ role: "assistant", content: whole });
  } catch (error) {
    replies.append(make("p", error.name === "AbortError" ? "stopped" : `failed: ${error.message}`, "note"));
    messages.pop();
  } finally {
    running = null;
    at("stop").disabled = true;
  }
}

at("ask").addEventListener("submit", event => {
  event.preventDefault();
  const question = at("prompt").value.trim();
  if (!question || running) return;
  at("prompt").value = "";
  ask(question);
});
at("prompt").addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("ask").requestSubmit();
});
at("stop").addEventListener("click", () => running?.abort());
at("clear").addEventListener("click", () => {
  running?.abort();
  messages.length = 0;
  at("turns").replaceChildren();
});
at("rejected").addEventListener("change", event => {
  document.body.classList.toggle("show-rejected", event.target.checked);
});

// ---- live figures ----

const history = { rate: [], steps: [], queue: [], cache: [] };
const KEPT = 90;
let before = null;

function parse(text) {
  const found = { at: {} };
  for (const line of text.split("\n")) {
    const match = /^paceline:(\w+)(\{.*\})? (\S+)$/.exec(line);
    if (!match) continue;
    const position = /position="(\d+)"/.exec(match[2] ?? "");
    if (position) found.at[Number(position[1])] = Number(match[3]);
    else found[match[1]] = (found[match[1]] ?? 0) + Number(match[3]);
  }
  found.time = performance.now() / 1000;
  return found;
}

function line(id, values, top) {
  const chart = at(id);
  chart.setAttribute("viewBox", `0 0 ${KEPT} 100`);
  chart.setAttribute("preserveAspectRatio", "none");
  const most = top ?? Math.max(1e-9, ...values);
  const points = values.map((value, index) => `${index + KEPT - values.length},${98 - (96 * value) / most}`);
  const shape = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  shape.setAttribute("points", points.join(" "));
  chart.replaceChildren(shape);
}

function bars(id, shares) {
  const chart = at(id);
  chart.setAttribute("viewBox", `0 0 ${Math.max(4, shares.length)} 100`);
  chart.setAttribute("preserveAspectRatio", "none");
  chart.replaceChildren(...shares.map((share, index) => {
    const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [name, value] of Object.entries({ x: index + 0.1, width: 0.8, y: 100 - 100 * share, height: 100 * share }))
      bar.setAttribute(name, value);
    const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
    title.textContent = `depth ${index + 1}: ${(100 * share).toFixed(0)} %`;
    bar.append(title);
    return bar;
  }));
}

function push(name, value) {
  history[name].push(value);
  if (history[name].length > KEPT) history[name].shift();
}

function show(now) {
  if (before) {
    push("rate", (now.generation_tokens_total - before.generation_tokens_total) / (now.time - before.time));
    at("rate").textContent = history.rate.at(-1).toFixed(1);
    line("rate-chart", history.rate);
  }
  const steps = now.verify_steps_total ? now.request_generation_tokens_sum / now.verify_steps_total : 0;
  push("steps", steps);
  at("steps").textContent = steps ? steps.toFixed(2) : "–";
  line("steps-chart", history.steps);
  const drafts = now.spec_decode_num_drafts_total;
  bars("depth-chart", Object.keys(now.at).map(Number).sort((a, b) => a - b).map(depth => now.at[depth] / Math.max(1, drafts)));
  push("queue", now.num_requests_running + now.num_requests_waiting);
  at("queue").textContent = `${now.num_requests_running} / ${now.num_requests_waiting}`;
  line("queue-chart", history.queue);
  push("cache", now.kv_cache_usage_perc);
  at("cache").textContent = `${(100 * now.kv_cache_usage_perc).toFixed(0)} %`;
  line("cache-chart", history.cache, 1);
  before = now;
}

async function watch() {
  try {
    const answer = await fetch("metrics", { headers: headers() });
    at("keyfield").hidden = answer.status !== 401 && !at("key").value;
    if (answer.ok) show(parse(await answer.text()));
    if (answer.ok && !at("config").textContent) await describe();
    if (answer.status === 401) at("about").textContent = "give an API key";
  } catch {
    at("about").textContent = "the server does not answer";
    at("config").textContent = "";
  }
  setTimeout(watch, document.hidden ? 5000 : 1000);
}

async function describe() {
  const config = await (await fetch("v1/config", { headers: headers() })).json();
  at("config").textContent = JSON.stringify(config, null, 2);
  at("about").textContent = `${config.server.model_names[0]} · drafting ${config.speculation.enabled ? "on" : "off"}: ` +
    config.speculation.why;
}

watch();
