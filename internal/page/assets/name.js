// The view of one name.

import { html, useCallback, useEffect, useMemo, useRef, useState } from "./preact-htm.js";
import { act, changed, get, may, onBegin, operation, state, toast } from "./server.js";
import { Bar, Chart, Confirm, Kind, useChange } from "./parts.js";
import { amount, holds, kinds, lastUse, limiters, limitWords, perSecond, quota, span } from "./words.js";

const window15 = 15 * 60;

// useHistory returns the columns of the chart: what the server remembers, and each frame since.
function useHistory(kind, name) {
	const path = "v1/activity/" + kind + "/" + encodeURIComponent(name);
	const [about, setAbout] = useState(null);
	const [fault, setFault] = useState("");
	const [data, setData] = useState([[], [], [], []]);
	const load = useCallback(async () => {
		try {
			const past = await get(path + (state.viewer && "?viewer=" + state.viewer));
			setAbout(past);
			setFault("");
			setData([past.at.map(ms => ms / 1000), past.granted, past.refused, past.waiting]);
		} catch (failed) {
			setFault(failed.message);
		}
	}, []);
	useEffect(() => {
		load();
		onBegin.add(load);
		return () => onBegin.delete(load);
	}, []);
	const row = state.frame?.rows.find(r => r.kind === kind && r.name === name);
	useEffect(() => {
		const at = state.frame?.now / 1000;
		// The first frame has no rates: there is none before it.
		if (!row || row.gone || row.granted_rate === null) {
			return;
		}
		setData(old => {
			if (old[0].at(-1) >= at) {
				return old;
			}
			const from = old[0].findIndex(s => s > at - window15);
			const next = [at, row.granted_rate, row.refused_rate, row.waiting];
			return old.map((column, i) => [...column.slice(Math.max(0, from)), next[i]]);
		});
	}, [state.frame]);
	// The users alone: the chart has each frame since, which the server's samples do not have.
	const reloadUsers = () => get(path).then(setAbout, () => {});
	return { about, row, data, fault, load, reloadUsers };
}

// useList returns a list of holders or waiters. It is read again when a frame says that something happened.
function useList(kind, name, what, signal) {
	const [list, setList] = useState(null);
	const load = useCallback(() => get(operation(kind, name, what) + "?limit=100").then(setList, fault => {
		setList(fault.status === 404 ? { total: 0, [what]: [] } : null);
	}), []);
	useEffect(() => {
		if (signal !== null) {
			load();
		}
	}, [signal]);
	return [list, load];
}

const Owner = ({ of }) => of.owner || of.host || of.purpose ? html`<span class="owner">
	<b>${of.owner || "–"}</b>${of.host && html` <span class="dim">on ${of.host}</span>`}
	${of.purpose && html`<span class="purpose">${of.purpose}</span>`}</span>`
	: html`<span class="dim">not said</span>`;

function Holders({ list, kind, name, ask, manages }) {
	return html`<section class="card"><h2>Holds <span class="count">${amount(list.total)}</span></h2>
		${list.holders.length === 0 ? html`<p class="dim">It is free.</p>` : html`<table class="list">
		<thead><tr><th scope="col">Owner</th><th scope="col" class="number">Since</th>
			<th scope="col" class="number">Ends in</th><th scope="col" class="number">Slots</th>
			${manages && html`<th scope="col"><span class="unseen">Actions</span></th>`}</tr></thead>
		<tbody>${list.holders.map(h => html`<tr key=${h.id}>
			<th scope="row"><${Owner} of=${h} />${h.grant && html` <span class="dim">grant ${h.grant}</span>`}
				${h.evicted && html`<span class="badge">evicted</span>`}</th>
			<td class="number" data-label="Since">${h.held_for === null ? "–" : span(h.held_for)}</td>
			<td class="number" data-label="Ends in">${h.expires_in === null ? "never" : span(h.expires_in)}</td>
			<td class="number" data-label="Slots">${amount(h.slots)}</td>
			${manages && html`<td class="actions"><button class="small" aria-label=${"Evict " + (h.owner || h.id)}
				onClick=${() => ask(evict(kind, name, h))}>Evict</button></td>`}</tr>`)}</tbody></table>`}
		${list.next && html`<p class="dim">The first ${list.holders.length} are shown.</p>`}</section>`;
}

function Waiters({ list, kind, name, ask, manages }) {
	const canBump = manages && (limiters.includes(kind) || holds.includes(kind));
	return html`<section class="card"><h2>Waits <span class="count">${amount(list.total)}</span></h2>
		${list.waiters.length === 0 ? html`<p class="dim">No request waits.</p>` : html`<table class="list">
		<thead><tr><th scope="col">Owner</th><th scope="col" class="number">Place</th>
			<th scope="col" class="number">Waiting for</th><th scope="col" class="number">Expected</th>
			${canBump && html`<th scope="col"><span class="unseen">Actions</span></th>`}</tr></thead>
		<tbody>${list.waiters.map(w => html`<tr key=${w.id}>
			<th scope="row"><${Owner} of=${w} />${w.grant && html` <span class="dim">grant ${w.grant}</span>`}</th>
			<td class="number" data-label="Place">${w.position}</td>
			<td class="number" data-label="Waiting for">${span(w.waiting_for)}</td>
			<td class="number" data-label="Expected">${w.expected_wait === null ? "not known" : span(w.expected_wait)}</td>
			${canBump && html`<td class="actions">${!w.grant && html`<button class="small"
				aria-label=${"Bump " + (w.owner || w.id)} onClick=${() => ask(bump(kind, name, w))}>Bump</button>`}
				</td>`}</tr>`)}</tbody></table>`}
		${(list.other_servers ?? []).length > 0 && html`<p class="dim">At other servers of this store: ${
			list.other_servers.map(s => s.waiting).reduce((a, b) => a + b, 0)} more.</p>`}
		${list.next && html`<p class="dim">The first ${list.waiters.length} are shown.</p>`}</section>`;
}

// Users are the users that were granted, or refused, most lately.
function Users({ title, tone, list }) {
	const most = Math.max(1, ...list.map(u => u.count));
	return list.length > 0 && html`<section class="card"><h2>${title}</h2>
		<ol class="users ${tone}">${list.map(u => html`<li key=${u.user}><span class="owner">${u.user}</span>
			<${Bar} row=${{ used: u.count, size: most }} show=${amount} text=${amount(u.count)} /></li>`)}</ol></section>`;
}

// What follows are the actions: what is asked before, and what is sent then.

const by = () => state.user || "page";
const reason = { name: "reason", label: "Reason, which they are told" };

const evict = (kind, name, holder) => ({
	title: `Evict ${holder.owner || holder.id}?`, verb: "Evict", danger: true,
	text: `${kind}/${name} is taken from this holder: its renewals are refused from now on, and the slots are `
		+ "free at the end of its term. If they are freed at once, another may begin while this one still works.",
	fields: [reason, { name: "now", label: "Free the slots at once", check: true }],
	onDo: v => act("POST", operation(kind, name, "evict"), { id: holder.id, owner: by(), ...v }),
	done: "Evicted",
});

const bump = (kind, name, waiter) => ({
	title: `Bump ${waiter.owner || waiter.id}?`, verb: "Bump",
	text: `This request goes to the front of the line of ${kind}/${name}, before all others.`,
	onDo: () => act("POST", operation(kind, name, "bump"), { id: waiter.id }),
	done: "Bumped to the front",
});

function actions(kind, name, closed) {
	const manages = may("manage", kind, name, limiters.includes(kind));
	const path = op => operation(kind, name, op);
	const closes = limiters.includes(kind) || holds.includes(kind);
	return [
		manages && closes && !closed && {
			label: "Close", title: `Close ${kind}/${name}?`, verb: "Close", danger: true, done: "Closed",
			text: "Nothing is granted until it is opened again. Requests that wait go on waiting.",
			fields: [reason], onDo: v => act("POST", path("close"), { owner: by(), ...v }),
		},
		manages && closes && closed && {
			label: "Open", title: `Open ${kind}/${name}?`, verb: "Open", done: "Opened",
			text: "Requests are granted again, in the order of the line.",
			onDo: () => act("POST", path("open"), { owner: by() }),
		},
		manages && limiters.includes(kind) && {
			label: "Feedback", title: `Tell ${kind}/${name} what a third party answered`, verb: "Report",
			text: "A 429 pauses this limiter for all clients until then. Any 2xx ends a pause.",
			fields: [
				{ name: "status", label: "Status", type: "number", value: "429", min: 100, max: 599, required: true },
				{ name: "retry-after", label: "Retry after, in ms", type: "number", value: "30000", min: 0 },
			],
			onDo: v => act("POST", path("feedback"), v), done: "Reported",
		},
		manages && (limiters.includes(kind) || kind === "counter") && {
			label: "Reset", title: `Reset ${kind}/${name}?`, verb: "Reset", danger: true, done: "Reset",
			text: kind === "counter" ? "The counter goes back to 0."
				: "It forgets all that was taken, so that its full limit is free at once.",
			onDo: () => act("POST", path("reset")),
		},
		manages && {
			label: "Delete", title: `Delete ${kind}/${name}?`, verb: "Delete", danger: true, done: "Deleted",
			text: "Holds, limits and statistics of this name are lost, and requests that wait end with an "
				+ "error. The next use of the name makes it anew. This cannot be taken back.",
			onDo: () => act("DELETE", path("")),
		},
	].filter(Boolean);
}

const rate = n => n !== null && n !== undefined && html`<small>${perSecond(n)}/s</small>`;

// Stats shows all figures that the kind has.
function Stats({ kind, name, signal }) {
	const [stats, setStats] = useState(null);
	useEffect(() => {
		get(operation(kind, name, "stats")).then(setStats, () => setStats(null));
	}, [signal]);
	const show = (label, value) => /_at$|^last_/.test(label) ? new Date(value).toLocaleString()
		: /time$|^interval$|_for$/.test(label) && typeof value === "number" ? span(value)
		: typeof value === "number" ? amount(value) : String(value);
	return stats && html`<section class="card"><h2>All figures</h2><dl class="stats">
		${Object.entries(stats).filter(([, v]) => v !== null && typeof v !== "object").map(([label, v]) =>
			html`<div><dt>${label.replaceAll("_", " ")}</dt><dd>${show(label, v)}</dd></div>`)}
	</dl></section>`;
}

export function Name({ kind, name }) {
	useChange();
	const { about, row, data, fault, load, reloadUsers } = useHistory(kind, name);
	const [asked, ask] = useState(null);
	// The lists are read again when something has happened at the name, and once in a while for their times.
	const age = useRef(0);
	age.current++;
	const signal = row ? [row.granted, row.refused, row.waiting, row.holders, row.used, row.closed, row.gone].join()
		: "";
	const [slow, setSlow] = useState(0);
	useEffect(() => {
		const timer = setInterval(() => !document.hidden && setSlow(n => n + 1), 5000);
		return () => clearInterval(timer);
	}, []);
	const turn = signal + "|" + slow;
	useEffect(() => {
		if (slow > 0) {
			reloadUsers();
		}
	}, [slow]);
	const [holders, readHolders] = useList(kind, name, "holders", holds.includes(kind) ? turn : null);
	const waits = kind !== "counter";
	const [waiters, readWaiters] = useList(kind, name, "waiters", waits ? turn : null);
	const now = state.frame?.now ?? Date.now();
	const closed = Boolean(row?.closed ?? (holders?.closed || waiters?.closed));
	// Before the first frame, what the history came with.
	const shown = { kind, name, size: 0, used: 0, waiting: 0, granted: 0, refused: 0, ...about?.now, ...row };
	shown.limits = about?.now?.limits ?? "";
	const label = useMemo(() => `Fifteen minutes of ${kind}/${name}: now ${perSecond(shown.granted_rate)} granted `
		+ `and ${perSecond(shown.refused_rate)} refused a second, ${amount(shown.waiting)} waiting`, [row]);
	const gone = row?.gone || about && !about.now && !row;
	if (!kinds.includes(kind) || !name) {
		return html`<div class="empty"><h1>No such page</h1><p><a href="#/">All names</a></p></div>`;
	}
	const confirmed = async values => {
		await asked.onDo(values);
		toast(`${asked.done}: ${kind}/${name}`);
		await Promise.allSettled([load(), holds.includes(kind) && readHolders(), waits && readWaiters()]);
		changed();
	};
	return html`<p class="back"><a href="#/">← All names</a></p>
		<div class="title"><h1><span>${name}</span> <${Kind} kind=${kind} />
			${closed && html`<span class="badge">closed</span>`}${gone && html`<span class="badge">does not exist</span>`}</h1>
			${!gone && html`<div class="buttons" role="group" aria-label="Actions">${
				actions(kind, name, closed).map(a => html`<button class=${a.danger ? "risky" : ""}
					onClick=${() => ask(a)}>${a.label}</button>`)}</div>`}</div>
		${fault && html`<p class="fault" role="alert">${fault}</p>`}
		<dl class="facts">
			${limitWords(shown) && html`<div class="wide"><dt>Limit</dt><dd>${limitWords(shown)}</dd></div>`}
			${quota(shown) !== null && html`<div class="wide"><dt>In use</dt><dd><${Bar} row=${shown} /></dd></div>`}
			<div><dt>Waiting</dt><dd>${amount(shown.waiting)}</dd></div>
			<div><dt>Granted</dt><dd>${amount(shown.granted)} ${rate(shown.granted_rate)}</dd></div>
			<div><dt>Refused</dt><dd>${amount(shown.refused)} ${rate(shown.refused_rate)}</dd></div>
			<div><dt>Last use</dt><dd>${lastUse(shown, now)}</dd></div>
		</dl>
		<section class="card"><h2>Fifteen minutes</h2>
			<${Chart} data=${data} label=${label} />
			${!state.history && html`<p class="dim">This server keeps no history (--history 0): the chart begins as
				you look.</p>`}
			${state.about?.shared && html`<p class="dim">Granted and refused count what all servers of this store
				did; waiting is at this server.</p>`}
		</section>
		<div class="pair">
			${holds.includes(kind) && holders && html`<${Holders} list=${holders} kind=${kind} name=${name} ask=${ask}
				manages=${may("manage", kind, name)} />`}
			${waits && waiters && html`<${Waiters} list=${waiters} kind=${kind} name=${name} ask=${ask}
				manages=${may("manage", kind, name, limiters.includes(kind))} />`}
		</div>
		<div class="pair">
			<${Users} title="Granted most lately" tone="granted" list=${about?.users_granted ?? []} />
			<${Users} title="Refused most lately" tone="refused" list=${about?.users_refused ?? []} />
		</div>
		<${Stats} kind=${kind} name=${name} signal=${turn} />
		${asked && html`<${Confirm} ...${asked} onDo=${confirmed} onClose=${() => ask(null)} />`}`;
}
