"use strict";

// address is what a form asks for: the path with its name, and a query of the fields that are filled in.
function address(form) {
	let path = form.dataset.path;
	const query = [];
	for (const field of form.querySelectorAll("[data-in]")) {
		const value = encodeURIComponent(field.value);
		if (field.dataset.in === "path") {
			path = value ? path.replace(`{${field.name}}`, value) : path;
		} else if (value) {
			query.push(`${field.name}=${value}`);
		}
	}
	return query.length ? `${path}?${query.join("&")}` : path;
}

const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;

// command is the same with curl.
function command(form) {
	const words = ["curl", "-i"];
	if (form.dataset.method !== "get" && !form.elements.body) {
		words.push("-X", form.dataset.method.toUpperCase());
	}
	if (form.elements.body) {
		words.push("-H", quoted("Content-Type: application/json"), "-d", quoted(form.elements.body.value));
	}
	return [...words, quoted(location.origin + address(form))].join(" ");
}

// shown are the headers of an answer that say something about it.
const shown = /^(ratelimit|ratelimit-policy|retry-after|gatehouse-.*|x-bouncer-message|content-type|location)$/;

async function ask(form, signal) {
	const options = { method: form.dataset.method.toUpperCase(), signal, cache: "no-store" };
	if (form.elements.body) {
		options.headers = { "Content-Type": "application/json" };
		options.body = form.elements.body.value;
	}
	const answer = await fetch(address(form), options);
	const lines = [`${answer.status} ${answer.statusText}`];
	for (const [name, value] of answer.headers) {
		if (shown.test(name)) {
			lines.push(`${name}: ${value}`);
		}
	}
	return { ok: answer.ok, text: `${lines.join("\n")}\n\n${await answer.text()}`.trimEnd() };
}

function prepare(form) {
	const line = form.querySelector(".command");
	const out = form.querySelector(".answer");
	const [send, stop] = form.querySelectorAll("button");
	let waiting = null;
	const update = () => { line.textContent = command(form); };
	form.addEventListener("input", update);
	update();
	stop.addEventListener("click", () => waiting.abort());
	form.addEventListener("submit", async event => {
		event.preventDefault();
		waiting = new AbortController();
		send.disabled = true;
		stop.hidden = out.hidden = false;
		out.className = "answer";
		out.textContent = "waiting …";
		try {
			const answer = await ask(form, waiting.signal);
			out.textContent = answer.text;
			out.classList.toggle("refused", !answer.ok);
		} catch (error) {
			out.textContent = error.name === "AbortError" ? "stopped waiting" : `no answer: ${error.message}`;
			out.classList.add("refused");
		}
		send.disabled = false;
		stop.hidden = true;
	});
}

// open unfolds what the address names: #/gcra/reserveGcra, as Swagger UI has it, #reserveGcra or #gcra.
function open() {
	const target = document.getElementById(location.hash.slice(1).split("/").pop());
	for (let node = target; node; node = node.parentElement) {
		if (node.tagName === "DETAILS") {
			node.open = true;
		}
	}
	if (target) {
		target.scrollIntoView();
	}
}

document.querySelectorAll("form[data-path]").forEach(prepare);
addEventListener("hashchange", open);
open();
