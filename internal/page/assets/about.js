// The views of the server itself: what it is, its capacity, and why it refused something.

import { html, useEffect, useRef, useState } from "./preact-htm.js";
import { get, state } from "./server.js";
import { Bar, useChange } from "./parts.js";
import { amount, bytes, link, span } from "./words.js";

// useRepeated asks for a path again and again, while the view is seen.
function useRepeated(path) {
	const [value, setValue] = useState(null);
	const [fault, setFault] = useState("");
	useEffect(() => {
		let over = false;
		const look = () => get(path).then(v => {
			if (!over) {
				setValue(v);
				setFault("");
			}
		}, failed => over || setFault(failed.message));
		look();
		const timer = setInterval(() => !document.hidden && look(), 5000);
		return () => {
			over = true;
			clearInterval(timer);
		};
	}, [path]);
	return [value, fault];
}

const limitNames = {
	names: ["Names", "--max-names"], waiters: ["Waiting", "--max-waiters"],
	holders: ["Holders", "--max-holders"], line: ["In one line", "--max-line"],
	connections: ["Connections, each protocol", "--max-connections"],
	buffered: ["Bytes buffered", "--max-buffered"],
};

export function Server() {
	useChange();
	const [about, fault] = useRepeated("v1/server");
	if (!about) {
		return html`<h1>Server</h1>${fault ? html`<p class="fault" role="alert">${fault}</p>`
			: html`<p class="loading" role="status">Asking the server…</p>`}`;
	}
	return html`<h1>Server</h1>
		${fault && html`<p class="fault" role="alert">${fault}</p>`}
		<div class="pair">
			<section class="card"><h2>What it is</h2><dl class="stats">
				<div><dt>Version</dt><dd>${about.version}</dd></div>
				<div><dt>Store</dt><dd>${about.store}${about.shared && " (shared)"}</dd></div>
				${about.servers > 0 && html`<div><dt>Servers of this store</dt><dd>${about.servers}</dd></div>`}
				${about.store_state && html`<div><dt>State</dt><dd>${about.store_state}</dd></div>`}
				<div><dt>Running for</dt><dd>${span(Date.now() - new Date(about.started))}</dd></div>
				<div><dt>Made with</dt><dd>${about.go}</dd></div>
				<div><dt>Reading this page</dt><dd>${state.frame?.viewers ?? "–"}</dd></div>
				${state.user && html`<div><dt>You are</dt><dd>${state.user}</dd></div>`}
			</dl></section>
			<section class="card"><h2>Listens on</h2><dl class="stats">
				${about.listeners.map(l => html`<div><dt>${l.protocol}</dt><dd>${l.address}</dd></div>`)}
			</dl></section>
		</div>
		<section class="card"><h2>Limits</h2><dl class="stats limits">
			${Object.entries(limitNames).filter(([name]) => about.limits[name]).map(([name, [label, flag]]) => {
				const { used, most } = about.limits[name];
				return html`<div><dt>${label} <code>${flag}</code></dt><dd>${used >= 0
					? html`<${Bar} row=${{ used, size: most }} show=${name === "buffered" ? bytes : amount} />`
					: amount(most)}</dd></div>`;
			})}
		</dl></section>
		<section class="card"><h2>Read on</h2><ul class="links">
			<li><a href="docs/">Documentation</a></li><li><a href="docs/api/">Try every call</a></li>
			<li><a href="docs/operations">Operations</a></li><li><a href="metrics">Metrics</a></li>
		</ul></section>`;
}

export function Capacity() {
	const [found, fault] = useRepeated("capacity");
	const number = n => n === -1 ? "no limit" : amount(n);
	return html`<h1>Capacity</h1>
		${fault && html`<p class="fault" role="alert">${fault}</p>`}
		${found && html`<p class="dim">${found.server} is ${found.master ? "master" : found.master_address
			? `not master; ${found.master_address} is` : "not master, and no master is known"}.${" "}
			<a href="capacity">The full pages</a> show templates, clients and leases.</p>
		${found.resources.length === 0 ? html`<div class="empty"><h2>No resources yet</h2>
			<p>A client that asks for a lease makes one: see
			${" "}<a href="docs/controllers/capacity">Capacity</a>.</p></div>`
			: html`<div class="card flush"><table class="names">
			<thead><tr><th scope="col">Resource</th><th scope="col">Algorithm</th><th scope="col">Leased</th>
				<th scope="col" class="number">Wanted</th><th scope="col" class="number">Clients</th></tr></thead>
			<tbody>${found.resources.map(r => html`<tr key=${r.resource_id}>
				<th scope="row" class="name"><a href=${"capacity/" + encodeURIComponent(r.resource_id)}>
					${r.resource_id}</a>${r.learning && html`<span class="badge">learning</span>`}</th>
				<td data-label="Algorithm">${r.algorithm}</td>
				<td class="use" data-label="Leased">${r.capacity > 0
					? html`<${Bar} row=${{ used: r.has, size: r.capacity }} />`
					: amount(r.has) + " of " + number(r.capacity)}</td>
				<td class="number" data-label="Wanted">${amount(r.wants)}</td>
				<td class="number" data-label="Clients">${amount(r.clients)}</td></tr>`)}</tbody></table></div>
			${found.next && html`<p class="more"><a href="capacity">More of them</a></p>`}`}`}`;
}

const time = text => new Date(text).toLocaleString();

// Explanation is all that is known of a refusal.
function Explanation({ of }) {
	const facts = [
		["When", time(of.at)], ["What was asked", `${of.op} of ${amount(of.cost || 1)}`],
		["Limit in the request", of.asked], ["Free then", of.limit > 0 && `${amount(of.remaining)} of ${amount(of.limit)}`],
		["It could pass", of.passes ? time(of.passes) : "when another request changes that"],
		["It had waited", of.waited > 0 && span(of.waited)], ["Others that waited", of.waiting > 0 && amount(of.waiting)],
		["Would have waited", of.maxwait === null ? "without end" : of.maxwait > 0 && span(of.maxwait)],
		["User", of.user], ["Owner", [of.owner, of.host && "on " + of.host, of.purpose].filter(Boolean).join(" ")],
		["Request id", of.request],
	].filter(([, value]) => value);
	const names = [...(of.want ?? []).map(w => [`${w.kind}/${w.name}`, w.outcome ?? w.result, w.remaining, w.limit]),
		...(of.windows ?? []).map(w => [w.limit, w.retry_after > 0 ? "refused" : "granted", w.remaining])];
	return html`<section class="card"><h2>${of.detail}</h2>
		<p><a href=${link(of.kind, of.name)}>${of.kind}/${of.name}</a></p>
		<dl class="stats">${facts.map(([label, value]) => html`<div><dt>${label}</dt><dd>${value}</dd></div>`)}</dl>
		${names.length > 0 && html`<h3>Which level</h3><dl class="stats">${names.map(([name, outcome, left]) => html`<div>
			<dt>${name}</dt><dd class=${outcome === "refused" ? "refused" : ""}>${outcome}, ${amount(left)} left</dd></div>`)}</dl>`}
		${of.holders?.length > 0 && html`<h3>Who held it, and still does</h3><dl class="stats">${of.holders.map(h => html`<div>
			<dt>${h.owner || h.id}${h.host && " on " + h.host}</dt><dd>since ${time(h.since)}</dd></div>`)}</dl>`}
		${of.users?.length > 0 && html`<h3>Who was granted most lately</h3><dl class="stats">${of.users.map(u => html`<div>
			<dt>${u.user}</dt><dd>${amount(u.count)}</dd></div>`)}</dl>`}</section>`;
}

export function Decision({ id }) {
	const [found, setFound] = useState(null);
	const [fault, setFault] = useState("");
	const field = useRef();
	useEffect(() => {
		if (id) {
			get("v1/decisions/" + encodeURIComponent(id)).then(setFound, failed => setFault(failed.message));
		}
	}, []);
	return html`<h1>Why was it refused?</h1>
		<form class="tools" onSubmit=${e => {
			e.preventDefault();
			location.hash = "#/decision/" + encodeURIComponent(field.current.value.trim());
		}}>
			<label class="find"><span class="unseen">Id of the refusal</span>
				<input ref=${field} required placeholder="Id of the refusal" defaultValue=${id} /></label>
			<button class="main" type="submit">Explain</button>
		</form>
		${fault && html`<p class="fault" role="alert">${fault}</p>`}
		${found && html`<${Explanation} of=${found} />`}
		${!id && html`<p class="dim">Each refusal has an id, in the header Gatehouse-Decision and as decision in JSON. This
			server explains its last ones. See <a href="docs/observability">Seen from outside</a>.</p>`}`;
}
