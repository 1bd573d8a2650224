// The view of all names.

import { html, useEffect, useMemo, useRef, useState } from "./preact-htm.js";
import { get, onBegin, state } from "./server.js";
import { Bar, Copyable, Kind, useChange } from "./parts.js";
import { amount, kinds, lastUse, limitWords, link, perSecond } from "./words.js";

const columns = [
	{ sort: "name", label: "Name" },
	{ label: "Limit" },
	{ sort: "used", label: "In use" },
	{ sort: "waiting", label: "Waiting", number: true },
	{ sort: "granted", label: "Granted /s", number: true },
	{ sort: "refused", label: "Refused /s", number: true },
	{ sort: "last", label: "Last use", number: true },
];

const sorts = [["busy", "Busiest"], ...columns.filter(c => c.sort).map(c => [c.sort, c.label])];
const steps = [100, 500];

// key names a row.
const key = row => row.kind + "/" + row.name;

// address is what is behind the # for a search, so that it can be kept as a bookmark.
function address(search) {
	const query = new URLSearchParams();
	for (const [name, value] of Object.entries(search)) {
		if (value && value !== "busy" && name !== "limit") {
			query.set(name, value);
		}
	}
	const text = query.toString();
	return "#/" + (text && "?" + text);
}

function readSearch(query) {
	const sort = query.get("sort");
	return {
		search: query.get("search") ?? "", kind: query.get("kind") ?? "",
		sort: sorts.some(([name]) => name === sort) ? sort : "busy",
		reverse: query.get("reverse") === "true" ? "true" : "", limit: steps[0],
	};
}

// useNames searches again when the search changes, when a stream begins, and now and then: as often as the
// server says that a search is worth it.
function useNames(search, quiet) {
	const [found, setFound] = useState(null);
	const [fault, setFault] = useState("");
	useEffect(() => {
		let timer;
		let over = false;
		const look = async () => {
			clearTimeout(timer);
			let fresh = 2000;
			// Rows do not move while the pointer is on one of them.
			if (!quiet.current || over) {
				try {
					const given = Object.entries({ ...search, viewer: state.viewer }).filter(([, v]) => v !== "");
					const names = await get("v1/names?" + new URLSearchParams(given));
					if (over) {
						return;
					}
					fresh = names.fresh;
					setFound({ ...names, search });
					setFault("");
				} catch (failed) {
					if (over) {
						return;
					}
					setFault(failed.message);
				}
			}
			clearTimeout(timer);
			timer = setTimeout(look, Math.max(3000, 2 * fresh));
		};
		const begun = () => {
			quiet.current = false;
			look();
		};
		// A pause in typing is waited for, but not when the view opens.
		timer = setTimeout(look, found ? 150 : 0);
		onBegin.add(begun);
		return () => {
			over = true;
			clearTimeout(timer);
			onBegin.delete(begun);
		};
	}, [search]);
	return [found, fault];
}

function Row({ row, now }) {
	return html`<tr class=${row.gone ? "gone" : ""}>
		<th scope="row" class="name"><a href=${link(row.kind, row.name)}>${row.name}</a>
			<${Kind} kind=${row.kind} />${row.closed && html`<span class="badge">closed</span>`}
			${row.gone && html`<span class="badge">gone</span>`}</th>
		<td class="limit" data-label="Limit">${limitWords(row)}</td>
		<td class="use" data-label="In use"><${Bar} row=${row} /></td>
		<td class="number ${row.waiting ? "waiting" : ""}" data-label="Waiting">${amount(row.waiting)}</td>
		<td class="number" data-label="Granted /s">${perSecond(row.granted_rate)}</td>
		<td class="number ${row.refused_rate ? "refused" : ""}" data-label="Refused /s">
			${perSecond(row.refused_rate)}</td>
		<td class="number" data-label="Last use">${lastUse(row, now)}</td>
	</tr>`;
}

function Head({ search, change }) {
	const sort = column => change({
		sort: column.sort, reverse: search.sort === column.sort && !search.reverse ? "true" : "",
	});
	// Numbers begin with the largest, names with the first.
	const order = column => search.sort !== column.sort ? undefined
		: (column.sort === "name") === !search.reverse ? "ascending" : "descending";
	return html`<thead><tr>${columns.map(c => html`<th scope="col" class=${c.number ? "number" : ""}
		aria-sort=${c.sort && order(c)}>
		${c.sort ? html`<button onClick=${() => sort(c)}>${c.label}<span aria-hidden="true">${
			{ ascending: " ↑", descending: " ↓" }[order(c)] ?? ""}</span></button>` : c.label}
	</th>`)}</tr></thead>`;
}

function Tools({ search, change }) {
	const field = useRef();
	useEffect(() => {
		const slash = e => {
			if (e.key === "/" && !e.target.closest("input, select, textarea, dialog")) {
				e.preventDefault();
				field.current.focus();
			}
		};
		addEventListener("keydown", slash);
		return () => removeEventListener("keydown", slash);
	}, []);
	return html`<form class="tools" role="search" onSubmit=${e => e.preventDefault()}>
		<label class="find"><span class="unseen">Search names</span>
			<input type="search" placeholder="Search names" ref=${field} value=${search.search}
				onInput=${e => change({ search: e.target.value })} /><kbd aria-hidden="true">/</kbd></label>
		<label><span class="unseen">Kind</span>
			<select value=${search.kind} onChange=${e => change({ kind: e.target.value })}>
				<option value="">All kinds</option>
				${kinds.map(kind => html`<option value=${kind}>${kind}</option>`)}
			</select></label>
		<label><span class="unseen">Order</span>
			<select value=${search.sort} onChange=${e => change({ sort: e.target.value, reverse: "" })}>
				${sorts.map(([name, label]) => html`<option value=${name}>${label}</option>`)}
			</select></label>
	</form>`;
}

function Nothing({ search, change }) {
	if (search.search || search.kind) {
		return html`<div class="empty"><h2>No such names</h2>
			<p>No ${search.kind || "name"} ${search.search && html`has “${search.search}” in it`}.</p>
			<p><button onClick=${() => change({ search: "", kind: "" })}>Show all names</button></p></div>`;
	}
	const base = location.origin + location.pathname.replace(/\/$/, "");
	return html`<div class="empty"><h2>No names yet</h2>
		<p>The first use of a name makes it. Try this, and watch it appear here:</p>
		<${Copyable} text=${`curl -i '${base}/v1/gcra/myapp/acquire?size=5&interval=60000'`} />
		<p>What is there for which need? See <a href="docs/controllers/">Which one?</a></p></div>`;
}

function Figure({ label, value, unit, tone }) {
	return html`<div class="figure ${tone ?? ""}">
		<dt>${label}</dt><dd>${value}${unit && html` <small>${unit}</small>`}</dd>
	</div>`;
}

function Totals() {
	const f = state.frame;
	// A user who may not see all names is told no sums over all of them.
	if (f && f.names === undefined) return null;
	return html`<dl class="totals" aria-label="This server now">
		<${Figure} label="Granted" value=${f ? perSecond(f.granted) : "–"} unit="/s" tone="granted" />
		<${Figure} label="Refused" value=${f ? perSecond(f.refused) : "–"} unit="/s" tone="refused" />
		<${Figure} label="Waiting" value=${f ? amount(f.waiting) : "–"} tone="waiting" />
		<${Figure} label="Names" value=${f ? amount(f.names) : "–"} />
	</dl>`;
}

export function Names({ query }) {
	useChange();
	const [search, setSearch] = useState(() => readSearch(query));
	const quiet = useRef(false);
	const [found, fault] = useNames(search, quiet);
	const change = part => {
		const next = { ...search, ...part };
		quiet.current = false;
		history.replaceState(null, "", address(next));
		setSearch(next);
	};
	// A frame is newer than the search, but says nothing of limits in words.
	const rows = useMemo(() => {
		const live = new Map((state.frame?.rows ?? []).map(row => [key(row), row]));
		return (found?.names ?? []).map(row => {
			const now = live.get(key(row));
			return !now ? row : now.gone ? { ...row, gone: true, waiting: 0 }
				: { ...row, ...now, size: now.size || row.size, used: row.kind === "barrier" ? row.used : now.used };
		});
	}, [found, state.frame]);
	const now = state.frame?.now ?? Date.now();
	return html`<h1 class="unseen">Names</h1>
		<${Totals} />
		<${Tools} search=${search} change=${change} />
		${fault && html`<p class="fault" role="alert">${fault}</p>`}
		${!found ? !fault && html`<p class="loading" role="status">Looking at the names…</p>`
			: rows.length === 0 ? html`<${Nothing} search=${search} change=${change} />`
			: html`<div class="card flush"><table class="names">
				<caption class="unseen">Names, ${rows.length} of them</caption>
				<${Head} search=${search} change=${change} />
				<tbody onMouseEnter=${() => { quiet.current = true; }}
					onMouseLeave=${() => { quiet.current = false; }}
					onfocusin=${() => { quiet.current = true; }} onfocusout=${() => { quiet.current = false; }}>
					${rows.map(row => html`<${Row} key=${key(row)} row=${row} now=${now} />`)}
				</tbody>
			</table></div>
			<p class="more" role="status">${found.more
				? html`The first ${amount(rows.length)} of more.${" "}
					${search.limit < steps.at(-1) ? html`<button onClick=${() => change({ limit: steps.at(-1) })}>
						Show ${steps.at(-1)}</button>` : "Search for the others."}`
				: rows.length === 1 ? "1 name" : amount(rows.length) + " names"}
				${found.partial && " There are more names than a search looks at: choose a kind."}</p>`}`;
}
