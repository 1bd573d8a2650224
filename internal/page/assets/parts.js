// Parts that several views have.

import { html, useEffect, useRef, useState } from "./preact-htm.js";
import { onChange } from "./server.js";
import { amount, perSecond, quota } from "./words.js";

// useChange shows a component again when what the server said has changed.
export function useChange() {
	const [, again] = useState(0);
	useEffect(() => onChange(() => again(n => n + 1)), []);
}

export const Kind = ({ kind }) => html`<span class="kind ${kind}">${kind}</span>`;

// Bar shows how much is used of what there is.
export function Bar({ row, show = amount, text: said }) {
	const part = quota(row);
	const ref = useRef();
	useEffect(() => {
		// Through the object model, because the page allows no style in its HTML.
		ref.current?.style.setProperty("width", 100 * part + "%");
	}, [part]);
	if (part === null) {
		return html`<span class="none">–</span>`;
	}
	const text = said ?? (row.kind === "lock" ? (row.used ? "held" : "free") : `${show(row.used)} of ${show(row.size)}`);
	// A lock that is held does its work. Only when others are kept out there is something to see.
	const keepsOut = row.waiting > 0 || row.refused_rate > 0;
	return html`<span class="bar ${part >= 1 && keepsOut ? "full" : part >= 0.8 && !said && row.kind !== "lock" ? "high" : ""}">
		<span class="track" aria-hidden="true"><span class="used" ref=${ref}></span></span>
		<span class="text">${text}</span>
	</span>`;
}

// Dialog is shown in front of the page. Escape and a click beside it close it.
export function Dialog({ title, onClose, children }) {
	const ref = useRef();
	useEffect(() => {
		const before = document.activeElement;
		const dialog = ref.current;
		dialog.showModal();
		return () => {
			// While it is open nothing behind it can have the focus.
			dialog.close();
			before?.focus?.();
		};
	}, []);
	return html`<dialog ref=${ref} aria-labelledby="dialog-title"
		onCancel=${e => {
			e.preventDefault();
			onClose();
		}}
		onClick=${e => e.target === ref.current && onClose()}>
		<div class="inside"><h2 id="dialog-title">${title}</h2>${children}</div>
	</dialog>`;
}

// Confirm asks before something is done. fields are asked for too, each with a name, a label and a value.
export function Confirm({ title, text, verb, danger, fields = [], onDo, onClose }) {
	const [values, setValues] = useState(Object.fromEntries(fields.map(f => [f.name, f.value ?? ""])));
	const [fault, setFault] = useState("");
	const [busy, setBusy] = useState(false);
	const go = async event => {
		event.preventDefault();
		setBusy(true);
		try {
			await onDo(values);
			onClose();
		} catch (failed) {
			setFault(failed.message);
			setBusy(false);
		}
	};
	const set = (name, value) => setValues(all => ({ ...all, [name]: value }));
	return html`<${Dialog} title=${title} onClose=${onClose}>
		<form onSubmit=${go}>
			<p>${text}</p>
			${fields.map(f => f.check ? html`<label class="check">
				<input type="checkbox" checked=${values[f.name] === "true"}
					onChange=${e => set(f.name, e.target.checked ? "true" : "")} /> ${f.label}</label>`
				: html`<label class="field"><span>${f.label}</span>
				<input type=${f.type ?? "text"} min=${f.min} max=${f.max} required=${f.required}
					value=${values[f.name]} onInput=${e => set(f.name, e.target.value)} />
			</label>`)}
			${fault && html`<p class="fault" role="alert">${fault}</p>`}
			<p class="buttons">
				<button type="button" onClick=${onClose}>Cancel</button>
				<button type="submit" class=${danger ? "danger" : "main"} disabled=${busy}>${verb}</button>
			</p>
		</form>
	</${Dialog}>`;
}

// Copyable is a command with a button that copies it.
export function Copyable({ text }) {
	const [done, setDone] = useState(false);
	const copy = async () => {
		try {
			await navigator.clipboard.writeText(text);
			setDone(true);
			setTimeout(() => setDone(false), 2000);
		} catch {
			// Browsers offer it to pages over TLS and on localhost only: the text can be selected.
		}
	};
	return html`<div class="copyable"><pre tabindex="0" aria-label="Command">${text}</pre>
		<button onClick=${copy}>${done ? "Copied" : "Copy"}</button></div>`;
}

const clock = seconds => new Date(seconds * 1000).toLocaleTimeString("en-GB");

const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Chart draws what was granted, refused and waiting. data has four columns: seconds and these.
export function Chart({ data, label }) {
	const box = useRef();
	const plot = useRef();
	useEffect(() => {
		const make = () => {
			plot.current?.destroy();
			const axis = { stroke: color("--dim"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
			const line = (label, tone, scale, more) => ({
				label, scale, stroke: color(tone), width: 1.75, points: { show: false }, ...more,
				value: (_, v) => v === null || v === undefined ? "–" : String(Math.round(v * 100) / 100),
			});
			plot.current = new window.uPlot({
				width: box.current.clientWidth, height: 240, cursor: { y: false },
				scales: {
					x: { time: true, range: (_, low, high) => [(high || Date.now() / 1000) - 15 * 60, high || Date.now() / 1000] },
					rate: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] },
					line: { range: (_, low, high) => [0, Math.max(4, high * 1.1)] },
				},
				axes: [
					{ ...axis, space: 70, values: (_, all) => all.map(s => clock(s).slice(0, 5)) },
					{ ...axis, scale: "rate", size: 52, values: (_, all) => all.map(perSecond) },
					{ ...axis, scale: "line", side: 1, size: 44, grid: { show: false },
						values: (_, all) => all.map(n => Number.isInteger(n) ? amount(n) : "") },
				],
				series: [
					{ value: (_, s) => s ? clock(s) : "–", label: "Time" },
					line("Granted /s", "--granted", "rate", { fill: color("--granted-soft") }),
					line("Refused /s", "--refused", "rate"),
					line("Waiting", "--waiting", "line", { dash: [4, 3] }),
				],
			}, data, box.current);
		};
		make();
		const scheme = matchMedia("(prefers-color-scheme: dark)");
		const resized = new ResizeObserver(() => plot.current.setSize({
			width: box.current.clientWidth, height: 240,
		}));
		scheme.addEventListener("change", make);
		resized.observe(box.current);
		return () => {
			scheme.removeEventListener("change", make);
			resized.disconnect();
			plot.current.destroy();
		};
	}, []);
	useEffect(() => plot.current?.setData(data), [data]);
	return html`<div class="chart" role="img" aria-label=${label} ref=${box}></div>`;
}
