"use strict";
// The page: listens to /events, and redraws the sections that have changed.  Data is inserted only as text.

const state = {};
const KINDS = { "offline": "Offline", "under-min-isr": "Below min.insync.replicas", "under-replicated": "Under-replicated" };
const AT_ONCE = 10, BROKERS_AT_ONCE = 24;
let skewMs = 0; // the server's clock minus ours
let heardMs = performance.now();

// -- making elements --------------------------------------------------------------------------------------------------

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {}))
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  made.append(...children.flat().filter(child => child !== null && child !== undefined).map(plain));
  return made;
}

// Characters that hide or reorder the text around them are shown as escapes, such as \u202e.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
const plain = child => child instanceof Node ? child
  : String(child).replace(UNSEEN, found => "\\u" + found.charCodeAt(0).toString(16).padStart(4, "0"));
const count = number => (number ?? 0).toLocaleString("en");
const name = each => `${each.topic}-${each.partition}`;
const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
const list = ids => (ids || []).join(", ");

function clock(us, withDate = false) {
  const at = new Date(us / 1000), options = { hour12: false };
  const day = at.toDateString() !== new Date().toDateString() || withDate;
  return el("time", { datetime: at.toISOString(), title: at.toISOString() },
    day ? at.toLocaleString("sv", options) : at.toLocaleTimeString("sv", options));
}

function ago(us) {
  const s = Math.max(0, (Date.now() + skewMs - us / 1000) / 1000);
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  return s < 172800 ? `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min` : `${Math.floor(s / 86400)} days`;
}

function duration(us) {
  return us < 1000 ? `${us} µs` : us < 1e6 ? `${(us / 1000).toFixed(1)} ms` : us < 6e7 ? `${(us / 1e6).toFixed(2)} s`
    : us < 3.6e9 ? `${Math.round(us / 6e7)} min` : `${(us / 3.6e9).toFixed(1)} h`;
}

function table(caption, columns, rows) {
  const head = columns.map(([title, , style]) => el("th", { scope: "col", class: style }, title));
  const body = rows.map(row => el("tr", {}, columns.map(([, cell, style], i) =>
    el(i ? "td" : "th", { scope: i ? null : "row", class: style }, cell(row)))));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)));
}

const nothing = text => el("p", { class: "none" }, text);
const more = (shown, all, how) => all > shown ? el("p", { class: "note" }, `… and ${count(all - shown)} more: ${how}`) : null;

// When the rest will be done at the pace so far; the server gives no time if it knows no pace.
function pace(found, left, noun, reserve) {
  return el("p", { class: "note" }, `${count(found.ended)} of ${count(found.ended + left)} ${noun} done`,
    found.since_us ? [" since ", clock(found.since_us)] : null, ". ",
    found.expected_us === null ? "Too few have ended lately to estimate when the rest will."
      : ["At this pace, the rest will be done at about ", clock(found.expected_us), `. ${reserve}`]);
}

// Folded until the reader opens it; stays open when its section is redrawn.
const opened = new Set();
const folded = (id, rows, show, title = "more") => rows.length
  ? el("details", { "data-id": id }, el("summary", {}, `${count(rows.length)} ${title}`), show(rows)) : null;

const labelOf = element => `${element.tagName} ${element.getAttribute("aria-label") || element.textContent}`;

function draw(id, ...children) {
  const place = document.querySelector(`#${id} > div`);
  const before = place.querySelector(".scroll")?.scrollLeft || 0;
  const focused = place.contains(document.activeElement) ? labelOf(document.activeElement) : null;
  // Asked here, because the browser tells of an opening ("toggle") later, perhaps after this.
  for (const each of place.querySelectorAll("details")) opened[each.open ? "add" : "delete"](each.dataset.id);
  place.replaceChildren(...children.flat().filter(Boolean));
  for (const each of place.querySelectorAll("details")) each.open = opened.has(each.dataset.id);
  if (focused) [...place.querySelectorAll("button, summary, .scroll")].find(each => labelOf(each) === focused)?.focus({ preventScroll: true });
  const scroll = place.querySelector(".scroll");
  if (scroll && before) scroll.scrollLeft = before;
}

function words(reason) {
  return reason.flatMap((clause, i) => [i ? "; " : null, clause.text, ...(clause.since_us ? [" since ", clock(clause.since_us)] : [])]);
}

function pressed(text, style, act) {
  const button = el("button", { type: "button", class: style }, text);
  button.addEventListener("click", act);
  return button;
}

const topicButton = (topic, text) => pressed(text, "name", () => showTopic(topic));

const mayAct = () => state.actions?.possible && state.controller?.active;

function actButton(text, title, asked) {
  if (!mayAct()) return null;
  const button = pressed(text, null, () => act(title, asked));
  button.setAttribute("aria-label", plain(title));
  return button;
}

// A table's column with a button in each row; none if the reader cannot act.
const actColumn = makes => mayAct() ? [["Action", row => { const made = makes(row); return made ? actButton(...made) : ""; }]] : [];

function since(each) {
  if (!each.since_us) return "not known";
  return el("span", { title: each.at_least ? "It was already so when this controller read the cluster" : null },
    each.at_least ? "before " : "", clock(each.since_us), ` (${ago(each.since_us)})`);
}

// -- sections ---------------------------------------------------------------------------------------------------------

const sections = {
  controller(found) {
    document.getElementById("headline").textContent = `Controller ${found.id}: ${found.active ? "active" : found.state}`;
    document.title = `${found.id}: ${found.active ? "active" : found.state}`;
    const term = document.getElementById("term");
    if (found.active) term.replaceChildren(`Epoch ${found.epoch}, active since `, found.since_us ? clock(found.since_us) : "a moment ago",
      found.unsent_partitions ? `; ${count(found.unsent_partitions)} partitions are yet to be sent to brokers` : "");
    else term.replaceChildren(
      found.holder === null ? "The role is vacant. " : `The role is held by ${found.holder}. `,
      `This standby is ${found.standby.state}${found.standby.reason ? ` (${found.standby.reason})` : ""}`,
      found.standby.state === "warm" ? `, ${count(found.standby.lag_ms)} ms behind.` : ".");
    const reasons = document.getElementById("reasons");
    reasons.replaceChildren(...found.reasons.map(text => el("li", {}, text)));
    reasons.hidden = !found.reasons.length;
  },
  counts(found) {
    const tiles = [["Offline", found.offline, "bad"], ["Below min ISR", found["under-min-isr"], "bad"],
      ["Under-replicated", found["under-replicated"], "amber"], ["Brokers", found.brokers], ["Topics", found.topics],
      ["Partitions", found.partitions], ["Not led by preferred", found.not_preferred], ["Waiting events", found.waiting_events],
      ["Replicas owed", found.owed_replicas], ["Events set aside", found.set_aside, "bad"]];
    document.getElementById("counts").replaceChildren(...tiles.map(([title, number, style]) =>
      el("div", {}, el("dt", {}, title), el("dd", { class: number && style ? style : null }, count(number)))));
  },
  brokers(found) {
    const remarks = b => [...b.evidence, b.failed_replicas ? `${plural(b.failed_replicas, "replica")} on failed log directories` : null,
      b.owed ? `${plural(b.owed, "replica")} to delete, of ${list(b.owed_topics)}` : null,
      b.retries && b.state !== "gone" && b.queued ? plural(b.retries, "failed attempt") : null].filter(Boolean).join("; ");
    const columns = [
      ["Broker", b => b.id, "n"],
      ["State", b => el("span", { class: { live: "good", gone: "bad", suspected: "bad", "not answering": "bad" }[b.state] || "amber" }, b.state,
        b.since_us ? [" since ", clock(b.since_us)] : null), "state"],
      ["Leaders", b => count(b.leaders), "n"], ["Replicas", b => count(b.replicas), "n"],
      ["Waiting requests", b => b.queued === null ? "" : count(b.queued + (b.in_flight ? 1 : 0)), "n"],
      ["Last answer", b => b.answered_us ? clock(b.answered_us) : "", "time"],
      ["Remarks", remarks, "words"],
      ["Address", b => [b.address, b.rack ? `rack ${b.rack}` : null].filter(Boolean).join(", "), "words"],
      ...actColumn(b => b.replicas && ["Drain …", `Move all replicas off broker ${b.id}`, { action: "drain", broker: b.id }]),
    ];
    // If there are many, those with remarks come first and the rest is folded, so that the sections below stay in sight.
    const ordered = found.length <= BROKERS_AT_ONCE ? found
      : [...found.filter(b => b.state !== "live" || remarks(b)), ...found.filter(b => b.state === "live" && !remarks(b))];
    draw("brokers", found.length ? table("Brokers", columns, ordered.slice(0, BROKERS_AT_ONCE)) : nothing("No broker is registered."),
      folded("brokers", ordered.slice(BROKERS_AT_ONCE), rest => table("Brokers, continued", columns, rest)),
      actButton("Elect all preferred leaders …", "Elect the preferred leaders of the cluster", { action: "elect-all" }));
  },
  broken(found) {
    const counts = state.counts || {};
    const columns = [
      ["Partition", each => topicButton(each.topic, name(each))], ["Reason", each => words(each.reason), "words"],
      ["Since", since, "time"], ["Leader", each => each.leader < 0 ? "none" : each.leader, "n"],
      ["In sync", each => list(each.isr)], ["Replicas", each => list(each.replicas)],
    ];
    const parts = Object.entries(KINDS).flatMap(([kind, title]) => !found[kind].length ? [] : [el("div", {},
      el("h3", {}, `${title} (${count(counts[kind] ?? found[kind].length)})`),
      table(title, columns, found[kind].slice(0, AT_ONCE)),
      folded(kind, found[kind].slice(AT_ONCE), rest => table(`${title}, continued`, columns, rest)),
      more(found[kind].length, counts[kind] || 0, `aiocontroller topics list --${kind}`))]);
    if (found.offline_by_topic.length > 1) parts.push(el("div", {}, el("h3", {}, "Topics with offline partitions"),
      table("Topics with offline partitions",
        [["Topic", ([topic]) => topicButton(topic, topic)], ["Offline", ([, number]) => count(number), "n"]], found.offline_by_topic)));
    if (found.unreadable?.length) parts.push(el("div", {}, el("h3", {}, `Unreadable znodes (${count(counts.unreadable)})`),
      el("p", { class: "note" }, "As they were when this controller last read them. It ignores them, so it does not know what they should say."),
      table("Unreadable znodes", [["Znode", each => each.path, "words"], ["Found", each => each.found, "words"], ["Expected", each => each.expected, "words"]],
        found.unreadable)));
    if (counts.complete === false) parts.push(el("p", { class: "note" }, "Some topics' min.insync.replicas are being read: there may be more."));
    draw("broken", parts.length ? parts : [nothing(state.controller?.active ? "Nothing: every partition has a leader and its replicas in sync."
      : "Only the active controller knows.")]);
  },
  check(found) {
    const summary = document.getElementById("check-message"), counts = found.counts;
    document.getElementById("check-now").setAttribute("aria-disabled", found.running_since_us !== null);
    summary.replaceChildren(...(found.running_since_us !== null ? ["Checking since ", clock(found.running_since_us), progress(found.progress)]
      : found.at_us === null ? ["Not checked yet."]
      : ["Checked at ", clock(found.at_us), ` in ${duration(found.took_ms * 1000)}: `,
        found.error || (Object.values(counts).some(Boolean) ? Object.entries(counts).filter(([, n]) => n).map(([name, n]) => `${count(n)} ${name}`).join(", ")
          : "nothing found"), "."]).map(plain));
    if (found.at_us !== shownCheckUs && found.running_since_us === null) showFindings(found.at_us);
  },
  instances(found) {
    draw("instances", found.problem ? el("p", { class: "bad" }, `Not known: ${found.problem}`)
      : found.instances.length ? table("Controllers", [
        ["Controller", i => [i.id, i.this ? " (this one)" : ""].join("")],
        ["State", i => el("span", { class: i.active || i.state === "standing by" ? "good" : "bad" }, i.state, i.reason ? `: ${i.reason}` : ""), "words"],
        ["Its copy", i => i.standby ? i.standby + (i.lag_s ? `, ${count(i.lag_s)} s behind` : "") : "", "state"],
        ["Started", i => clock(i.started_us), "time"], ["Version", i => i.release],
        ["Page", i => `${i.http} on ${i.host}`, "words"],
      ], found.instances) : nothing("None has registered itself yet."),
      found.instances.length === 1 && found.instances[0].active ? el("p", { class: "note" }, "No standby runs: when this process ends, no other takes the role.") : null,
      actButton("Release the role …", "Release the role", { action: "release" }));
  },
  reassignments(found) {
    draw("reassignments", found.count ? [pace(found.pace, found.count, "partitions", "They differ in size, which this controller does not know."), table("Reassignments", [
      ["Partition", each => topicButton(each.topic, name(each))],
      ["Caught up", each => `${each.in_sync.length} of ${each.adding.length}`, "n"],
      ["Adding", each => list(each.adding)], ["Removing", each => list(each.removing)],
      ["", each => each.cancelled ? "is being cancelled"
        : each.waits_for.length ? `waits for ${each.waits_for.length > 1 ? "brokers" : "broker"} ${list(each.waits_for)}, not live or with a failed log directory` : "", "words"],
      ...actColumn(each => ["Cancel …", `Cancel the reassignment of ${name(each)}`, { action: "cancel", topic: each.topic, partition: each.partition }]),
    ], found.partitions), more(found.partitions.length, found.count, "aiocontroller reassign --list")] : [nothing("None.")]);
  },
  deletions(found) {
    draw("deletions", found.count ? [pace(found.pace, found.count, "topics", "Halted ones are not included."), table("Deletions", [
      ["Topic", each => each.topic], ["State", each => each.state, "state"], ["Partitions", each => count(each.partitions), "n"],
      ["Replicas left", each => each.replicas_left === null ? "" : count(each.replicas_left), "n"],
      ["Waits for", each => each.waits_for, "words"],
    ], found.topics), more(found.topics.length, found.count, "/overview")] : [nothing("None.")]);
  },
  incidents(found) {
    draw("incidents", found.length ? found.flatMap(each => [
      el("h3", { class: "incident" }, each.found_so ? "Before " : "", clock(each.began_us),
        each.ended_us === null ? el("span", { class: "bad" }, ` goes on, ${ago(each.began_us)}`) : ` for ${duration(each.ended_us - each.began_us)}`),
      el("p", { class: "note" }, `At worst: ${Object.entries(each.worst).map(([kind, n]) => `${count(n)} ${KINDS[kind].toLowerCase()}`).join(", ")}`),
      el("ol", { class: "timeline" }, each.phases.map(phase => el("li", {}, clock(phase.at_us), phase.text)),
        each.more_phases ? el("li", {}, `… and ${count(each.more_phases)} more`) : null)]) : [nothing("None since this process started.")]);
  },
  failovers(found) {
    draw("failovers", found.length ? found.flatMap(each => {
      const total = each.steps.reduce((sum, step) => sum + step.duration_us, 0);
      return [el("h3", { class: "incident" }, `Epoch ${each.epoch}, `, clock(each.at_us), `: ${duration(total)}`,
        each.ended_us === null ? "" : `, until ${new Date(each.ended_us / 1000).toLocaleTimeString("sv")}`),
      table(`Steps of the failover of epoch ${each.epoch}`, [["Step", step => step.step, "words"],
        ["Took", step => duration(step.duration_us), "n"]], each.steps.toSorted((a, b) => b.duration_us - a.duration_us).slice(0, 8))];
    }) : [nothing("This process has not been the controller yet.")]);
  },
  events(found) {
    draw("events", found.length ? el("ol", { class: "timeline" }, found.map(each => el("li", {}, clock(each.at_us), each.text)))
      : nothing("None yet."));
  },
};

function verdict() {
  const counts = state.counts, place = document.getElementById("verdict");
  if (!counts || !state.controller) return;
  const problems = [], gone = (state.brokers || []).filter(b => b.state !== "live").length;
  if (counts.offline) problems.push(`${count(counts.offline)} offline`);
  if (counts["under-min-isr"]) problems.push(`${count(counts["under-min-isr"])} below min.insync.replicas`);
  if (counts["under-replicated"]) problems.push(`${count(counts["under-replicated"])} under-replicated`);
  let text = problems.length ? `Partitions: ${problems.join(", ")}.` : "";
  if (gone) text += ` Brokers not live: ${count(gone)}.`;
  if (counts.unreadable) text += ` Unreadable znodes: ${count(counts.unreadable)}.`;
  let style = counts.offline || counts["under-min-isr"] ? "bad" : text ? "amber" : "good";
  if (!state.controller.active) [text, style] = [`This process is ${state.controller.state}.`, state.controller.state === "standing by" ? "good" : "bad"];
  text = text.trim() || "All is well.";
  if (place.textContent !== text) place.textContent = text; // said once by a screen reader
  place.className = style;
}

// -- hearing ----------------------------------------------------------------------------------------------------------

function hear(data) {
  heardMs = performance.now();
  skewMs = data.now_us / 1000 - Date.now();
  document.getElementById("link").hidden = true;
  if (state.page && data.page && data.page !== state.page) document.getElementById("outdated").hidden = false;
  Object.assign(state, data);
  const changed = new Set(Object.keys(data));
  if (changed.has("counts") || changed.has("controller")) changed.add("broken");
  if (changed.has("actions") || changed.has("controller")) changed.add("reassignments").add("instances").add("brokers");
  for (const section of Object.keys(sections)) if (changed.has(section) && state[section]) sections[section](state[section]);
  verdict();
}

let source;
function connect() {
  source?.close();
  source = new EventSource("/events");
  source.onmessage = message => hear(JSON.parse(message.data));
  source.onerror = () => {
    if (source.readyState !== EventSource.CLOSED) return; // the browser tries again
    ask("/overview").then(hear).catch(() => {}); // there may be too many streams: this page asks instead
    setTimeout(connect, 3000);
  };
}

setInterval(() => {
  const silent = (performance.now() - heardMs) / 1000, link = document.getElementById("link");
  if (silent < 12) return;
  const text = `No word from the controller for ${Math.floor(silent / 10) * 10} s: what is shown below is old.`;
  if (link.textContent !== text) link.textContent = text;
  link.hidden = false;
}, 1000);

// -- finding ----------------------------------------------------------------------------------------------------------

async function ask(path) {
  const answer = await fetch(path);
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error || answer.statusText);
  return found;
}

async function show(heading, make) {
  const section = document.getElementById("found"), head = document.getElementById("found-heading");
  head.textContent = plain(heading);
  section.hidden = false;
  try {
    draw("found", await make());
  } catch (error) {
    draw("found", el("p", { class: "bad" }, error.message));
  }
  head.focus();
}

// -- the check --------------------------------------------------------------------------------------------------------

let shownCheckUs = null;

const progress = found => !found ? " …" : `: ${count(found.read)} of ${plural(found.of, "partition")} read${found.again ? " a second time" : ""} …`;

async function showFindings(atUs) {
  shownCheckUs = atUs;
  const found = await ask("/findings").catch(error => ({ findings: [], error: error.message }));
  draw("check", ...(found.findings || []).flatMap(each => [
    el("h3", { class: "incident" }, el("span", { class: { critical: "bad", warning: "amber" }[each.severity] || "none" }, each.severity), `: ${each.title}`),
    el("dl", { class: "finding" }, [["Why", each.why], ["What follows", each.consequence], ["What to do", each.remedy],
      ["Where", list(each.subjects) + (each.count > each.subjects.length ? ` and ${count(each.count - each.subjects.length)} more` : "")]]
      .flatMap(([term, text]) => [el("dt", {}, term), el("dd", {}, text)])),
    folded(`evidence ${each.title} ${each.why}`, each.evidence, rows => table(`Evidence: ${each.title}`,
      [["Znode", row => row[0]], ["Changed by", row => `0x${row[1].toString(16)}`], ["Content", row => row[2], "words"]], rows), each.evidence.length === 1 ? "znode as evidence" : "znodes as evidence")]),
  found.count > found.findings?.length ? more(found.findings.length, found.count, "aiocontroller check") : null);
}

async function post(path, body) {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) })
    .catch(() => { throw new Error(`This controller does not answer. ${path === "/confirm" ? "It may have done it or not: see the events of the active controller."
      : "Nothing was done. Another one may be active: see its page."}`); });
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(found.error || answer.statusText), found);
  return found;
}

document.getElementById("check-now").addEventListener("click", async () => {
  try {
    const found = await post("/check", {});
    sections.check(state.check = found);
  } catch (error) {
    document.getElementById("check-message").textContent = plain(error.message);
  }
});

// -- actions ----------------------------------------------------------------------------------------------------------

const dialog = document.getElementById("act");
const part = name => document.getElementById(`act-${name}`);
let asked = null, confirmation = null, waiting = false, opener = null;

function act(title, what) {
  [asked, confirmation, opener] = [{ ...what }, null, document.activeElement];
  part("title").textContent = plain(title);
  part("lines").replaceChildren();
  part("message").textContent = part("password").value = "";
  waiting = false;
  part("go").textContent = "Show what it would do";
  part("go").hidden = part("who").hidden = false;
  part("where").hidden = !what.replicas;
  part("replicas").value = list(what.replicas);
  dialog.showModal();
}

// First the dry run, then the action itself: it is confirmed as it was shown.
async function goOn(event) {
  event.preventDefault();
  if (waiting) return;
  if (asked.replicas && !confirmation) {
    const typed = part("replicas").value.trim().split(/[\s,]+/);
    if (!typed.every(each => /^\d{1,10}$/.test(each))) {
      part("message").textContent = plain(`Replicas: found '${typed.join(", ")}', expected the ids of brokers, such as 1, 2, 3.`);
      return;
    }
    asked.replicas = typed.map(Number);
  }
  waiting = true;
  const mine = asked; // an answer that arrives after the dialog was closed does not belong to the next action
  const actor = { name: part("name").value.trim(), password: part("password").value };
  part("message").textContent = confirmation ? "Carrying it out …" : "";
  try {
    const found = confirmation ? await post("/confirm", { confirmation, ...actor }) : await post("/dry-run", { ...asked, ...actor });
    if (asked !== mine) return;
    part("title").textContent = plain(found.title);
    part("lines").replaceChildren(...found.lines.map(line => el("li", {}, line)));
    part("message").textContent = plain(found.confirmation ? `Nothing is done yet. The journal will say: ${found.who}.` : "Done.");
    part("go").textContent = "Do it";
    part("who").hidden = part("where").hidden = true;
    part("go").hidden = !found.confirmation;
    confirmation = found.confirmation || null;
    part("title").focus(); // so that another Enter does not confirm by accident
  } catch (error) {
    if (asked !== mine) return;
    part("message").textContent = plain(error.message);
    part("who").hidden = false;
    part("where").hidden = !asked.replicas;
    part("go").textContent = "Show what it would do";
    confirmation = null;
  }
  waiting = false;
}

dialog.querySelector("form").addEventListener("submit", goOn);
part("close").addEventListener("click", () => dialog.close());
dialog.addEventListener("close", () => {
  if (dialog.open) return; // this event comes late, and another action has begun meanwhile
  part("password").value = "";
  asked = confirmation = null;
  waiting = false;
  // The browser gives the focus back to the button, but that may have been drawn again meanwhile.
  if (opener && !opener.isConnected) [...document.querySelectorAll("button")].find(each => labelOf(each) === labelOf(opener))?.focus();
});

const showTopic = topic => show(`Topic ${topic}`, async () => {
  const found = await ask(`/partitions?${new URLSearchParams({ topic, limit: 250 })}`);
  return [actButton("Elect preferred leaders …", `Elect the preferred leaders of ${topic}`, { action: "elect", topic }), table(`Partitions of ${topic}`, [
    ["Partition", each => each.partition, "n"], ["Leader", each => each.leader < 0 ? "none" : each.leader, "n"],
    ["In sync", each => list(each.isr)], ["Replicas", each => list(each.replicas)],
    ["What is broken", each => Object.entries(each.broken).flatMap(([kind, b], i) => [i ? ". " : null, `${KINDS[kind]}: `, ...words(b.reason)]), "words"],
    ...actColumn(each => ["Move …", `Move the replicas of ${name(each)}`, { action: "move", topic, partition: each.partition, replicas: each.replicas }]),
  ], found.partitions), more(found.partitions.length, found.count, `aiocontroller topics describe ${topic}`)];
});

document.getElementById("search").addEventListener("submit", event => {
  event.preventDefault();
  const text = document.getElementById("text").value.trim();
  if (text) show(`Found for ${text}`, async () => {
    const found = await ask(`/search?${new URLSearchParams({ q: text })}`);
    const rows = [
      ...found.brokers.map(b => ["broker", `${b.id}`, b.address, null]),
      ...found.partitions.map(p => ["partition", name(p), "", p.topic]),
      ...found.topics.map(t => ["topic", t.topic, `${count(t.partitions)} partitions`, t.topic])];
    return rows.length ? table("Found", [["Name", row => row[3] ? topicButton(row[3], row[1]) : row[1]], ["What", row => row[0]],
      ["", row => row[2], "words"]], rows) : nothing("Nothing has this in its name.");
  });
});

connect();
