// What the server says: answers to single requests, and the stream of frames.

const tokenKey = "gatehouse-token";

// state is what all views show. Code that changes it calls changed.
export const state = {
	status: "connecting", viewer: "", history: true, frame: null, about: null, may: null, user: "",
	needsToken: false, tokenRefused: false, toast: null,
};

const listeners = new Set();

// onChange calls f whenever state has changed, until what it returns is called.
export function onChange(f) {
	listeners.add(f);
	return () => listeners.delete(f);
}

let asked = false;

// changed tells the views, once for all changes of this turn.
export function changed() {
	if (!asked) {
		asked = true;
		queueMicrotask(() => {
			asked = false;
			listeners.forEach(f => f());
		});
	}
}

export const hasToken = () => Boolean(sessionStorage.getItem(tokenKey));

export function setToken(token) {
	if (token) {
		sessionStorage.setItem(tokenKey, token);
	} else {
		sessionStorage.removeItem(tokenKey);
	}
	state.needsToken = false;
	changed();
	restart();
}

// An Answer that is none of 200 to 299 is thrown, with the sentence that the server said.
export class Refused extends Error {
	constructor(status, detail) {
		super(detail);
		this.status = status;
	}
}

async function ask(path, options = {}) {
	const headers = { Accept: "application/json", ...options.headers };
	const token = sessionStorage.getItem(tokenKey);
	if (token) {
		headers.Authorization = "Bearer " + token;
	}
	const answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
	// The answer to what was asked before another token was given says nothing about that one.
	if (answer.status === 401 && token === sessionStorage.getItem(tokenKey)) {
		state.needsToken = true;
		state.tokenRefused = Boolean(token);
		changed();
	}
	if (!answer.ok) {
		const text = await answer.text();
		let detail = text;
		try {
			detail = JSON.parse(text).detail ?? text;
		} catch {
			// It is a sentence already.
		}
		throw new Refused(answer.status, detail || "The server answered " + answer.status);
	}
	return answer;
}

// get returns what a path answers, as a value.
export const get = async path => (await ask(path)).json();

// act asks for an operation, which changes something.
export async function act(method, path, parameters = {}) {
	const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== undefined);
	await ask(path + (given.length ? "?" + new URLSearchParams(given) : ""), { method });
}

// operation is the path of an operation at a name.
export const operation = (kind, name, op) =>
	"v1/" + kind + "/" + encodeURIComponent(name) + (op ? "/" + op : "");

// rights asks what this user may do. Without users all may do all, and the server is not asked.
async function rights() {
	try {
		const who = await get("v1/whoami");
		state.may = who.rights ? who.may ?? [] : null;
		state.user = who.user ?? "";
	} catch {
		state.may = [];
	}
	changed();
}

// introduce asks what the server is, and what this user may do. Neither changes while a stream lasts.
async function introduce() {
	try {
		state.about = await get("v1/server");
	} catch {
		// The stream says what is wrong.
	}
	// A user who may not see the server may still be one who does other things.
	if (state.about?.rights !== false) {
		await rights();
	}
}

const levels = ["read", "use", "manage"];

// matches says whether a name fits a glob, with * for any text, ? for a character, and [a-z].
function matches(glob, text) {
	const pattern = glob.replace(/\[[^\]]+\]|[^\w]/g, part => part === "*" ? "[^]*" : part === "?" ? "[^]"
		: part.length > 1 ? part : "\\" + part);
	try {
		return new RegExp("^" + pattern + "$").test(text);
	} catch {
		return true; // The server decides.
	}
}

// may says whether this user has a level at a name. The server decides; this only hides what it would refuse.
export function may(level, kind, name, isLimiter) {
	if (!state.may) {
		return true;
	}
	const texts = [kind + "/" + name, ...(isLimiter ? ["limiter/" + name] : [])];
	// They come in the order in which the server looks: the first that matches decides.
	const line = state.may.find(line => texts.some(text => matches(line.on, text)));
	return line !== undefined && levels.indexOf(line.do) >= levels.indexOf(level);
}

let toastTimer;

// toast shows a sentence for a while.
export function toast(text, tone = "good") {
	clearTimeout(toastTimer);
	state.toast = { text, tone };
	toastTimer = setTimeout(() => {
		state.toast = null;
		changed();
	}, 6000);
	changed();
}

// readEvents calls event with each event of a stream until that ends.
async function readEvents(body, event) {
	const reader = body.pipeThrough(new TextDecoderStream()).getReader();
	let rest = "";
	for (;;) {
		const { done, value } = await reader.read();
		if (done) {
			return;
		}
		const parts = (rest + value).split("\n\n");
		rest = parts.pop();
		for (const part of parts) {
			const [, name, data] = /^event: (\S+)\ndata: (.*)$/s.exec(part) ?? [];
			if (name) {
				event(name, JSON.parse(data));
			}
		}
	}
}

let stream = null;
let failures = 0;
let retry;

// onBegin is called when a stream has begun.
export const onBegin = new Set();

function take(name, value) {
	if (name === "hello") {
		failures = 0;
		state.viewer = value.viewer;
		state.history = value.history;
		state.status = "live";
		introduce();
		onBegin.forEach(f => f());
	} else if (name === "frame") {
		state.frame = value;
	}
	changed();
}

async function follow() {
	const own = stream = new AbortController();
	let refused = false;
	try {
		const answer = await ask("v1/activity", {
			signal: own.signal, headers: { Accept: "text/event-stream" },
		});
		await readEvents(answer.body, (name, value) => own === stream && take(name, value));
	} catch (fault) {
		// A token that is missing or may not do this will not do so by itself.
		refused = fault instanceof Refused && (fault.status === 401 || fault.status === 403);
	}
	if (own !== stream) {
		return;
	}
	state.viewer = "";
	state.status = refused ? "refused" : "lost";
	changed();
	if (!refused) {
		failures++;
		retry = setTimeout(follow, Math.min(5000, 250 * 2 ** Math.min(failures, 5)) * (0.5 + Math.random() / 2));
	}
}

function end(status) {
	clearTimeout(retry);
	stream?.abort();
	stream = null;
	state.viewer = "";
	state.status = status;
	changed();
}

export function restart() {
	end("connecting");
	follow();
}

// A hidden tab costs the server nothing.
let hidden;
document.addEventListener("visibilitychange", () => {
	clearTimeout(hidden);
	if (document.hidden) {
		hidden = setTimeout(() => end("paused"), 30e3);
	} else if (state.status === "paused") {
		restart();
	}
});

// Browsers keep pages that were left for a while, for the way back, and with them what they had open. Six
// streams would be all the connections that a browser makes to one server.
addEventListener("pagehide", () => end("paused"));
addEventListener("pageshow", event => event.persisted && restart());

restart();
