// The page: its header, its views, and what is common to them.

import { html, render, useEffect, useErrorBoundary, useState } from "./preact-htm.js";
import { hasToken, setToken, state } from "./server.js";
import { Capacity, Decision, Server } from "./about.js";
import { Names } from "./names.js";
import { Name } from "./name.js";
import { Dialog, useChange } from "./parts.js";

// place reads the address: what is behind its # is a path and a query, as in #/lock/deploy.
function place() {
	const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
	const [first, ...rest] = path.split("/");
	let name = rest.join("/");
	try {
		name = decodeURIComponent(name);
	} catch {
		// It is shown as it is.
	}
	return { first, name, query: new URLSearchParams(query ?? "") };
}

function View({ at }) {
	if (at.first === "") {
		return html`<${Names} query=${at.query} />`;
	}
	if (at.first === "server") {
		return html`<${Server} />`;
	}
	if (at.first === "capacity") {
		return html`<${Capacity} />`;
	}
	if (at.first === "decision") {
		return html`<${Decision} key=${at.name} id=${at.name} />`;
	}
	return html`<${Name} key=${at.first + "/" + at.name} kind=${at.first} name=${at.name} />`;
}

const statuses = {
	connecting: "Connecting", live: "Live", lost: "Reconnecting", paused: "Paused", refused: "Not allowed",
};

function Header({ at }) {
	const link = (to, text) => html`<a href=${"#/" + to}
		aria-current=${at.first === to || to === "" && !["server", "capacity", "decision"].includes(at.first)
			? "page" : undefined}>${text}</a>`;
	return html`<header class="top">
		<a class="brand" href="#/"><img src="page/icon.svg" alt="" width="24" height="24" />Gatehouse</a>
		<nav aria-label="Views">
			${link("", "Names")}
			${state.about?.capacity && link("capacity", "Capacity")}
			${link("decision", "Explain")}
			${link("server", "Server")}
			<a href="docs/">Docs</a>
		</nav>
		<span class="status ${state.status}" role="status">${statuses[state.status]}</span>
		${hasToken() && html`<button class="quiet" onClick=${() => setToken("")}>Sign out</button>`}
	</header>`;
}

// AskToken asks for a token, when the server answered that it needs one.
function AskToken() {
	const [text, setText] = useState("");
	const use = event => {
		event.preventDefault();
		setToken(text.trim());
		setText("");
	};
	return html`<${Dialog} title="This server asks who you are" onClose=${() => {}}>
		<form onSubmit=${use}>
			<p>Paste a token. It stays in this tab until you close it or sign out.
			${" "}<code>gatehouse token NAME</code> makes one.</p>
			<label class="field"><span>Token</span>
				<input type="password" autocomplete="off" required value=${text}
					onInput=${e => setText(e.target.value)} />
			</label>
			${state.tokenRefused && html`<p class="fault" role="alert">The server does not know this token.</p>`}
			<p class="buttons"><button class="main" type="submit">Use it</button></p>
		</form>
	</${Dialog}>`;
}

function App() {
	useChange();
	const [at, setAt] = useState(place);
	const [fault, forget] = useErrorBoundary();
	useEffect(() => {
		const moved = () => {
			setAt(place());
			forget();
			// A screen reader, and the keys, go on at the beginning of the new view.
			document.querySelector("main").focus({ preventScroll: true });
			scrollTo(0, 0);
		};
		addEventListener("hashchange", moved);
		return () => removeEventListener("hashchange", moved);
	}, []);
	useEffect(() => {
		document.title = (at.name ? at.first + "/" + at.name + " · " : "") + "Gatehouse";
	}, [at]);
	return html`
		<a class="skip" href="#main" onClick=${e => {
			e.preventDefault();
			document.querySelector("main").focus();
		}}>Skip to the content</a>
		<${Header} at=${at} />
		<main tabindex="-1">
			${fault ? html`<p class="fault" role="alert">The page failed: ${String(fault)}</p>` : html`
				${state.toast && html`<p class="toast ${state.toast.tone}" role="status">${state.toast.text}</p>`}
				<${View} at=${at} />`}
		</main>
		${state.needsToken && html`<${AskToken} />`}`;
}

render(html`<${App} />`, document.getElementById("app"));
