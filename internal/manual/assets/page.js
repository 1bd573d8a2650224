"use strict";

// Links of earlier versions, such as /docs/#/gcra/reserveGcra, lead to one call.
if (location.hash.startsWith("#/") && !document.querySelector(".tag")) {
	location.replace(new URL("../api/", document.currentScript.src) + location.hash);
}

// copied is what a block of code is good for elsewhere: of a dialogue, the commands without their prompts and
// answers; of anything else, all of it.
function copied(text) {
	const lines = text.replace(/\n$/, "").split("\n");
	if (!lines.some(line => line.startsWith("$ "))) {
		return lines.join("\n");
	}
	const commands = [];
	let goesOn = false;
	for (const line of lines) {
		if (line.startsWith("$ ")) {
			commands.push(line.slice(2));
		} else if (goesOn) {
			commands.push(line);
		}
		goesOn = (goesOn || line.startsWith("$ ")) && line.endsWith("\\");
	}
	return commands.join("\n");
}

// write puts a text on the clipboard. Browsers offer that to pages over TLS and on localhost only; elsewhere the
// text is selected in a field, and copied from there.
async function write(text) {
	if (navigator.clipboard) {
		return navigator.clipboard.writeText(text);
	}
	const field = document.createElement("textarea");
	field.value = text;
	document.body.append(field);
	field.select();
	const done = document.execCommand("copy");
	field.remove();
	if (!done) {
		throw new Error("the browser does not copy");
	}
}

for (const code of document.querySelectorAll("pre > code")) {
	const block = document.createElement("div");
	const button = document.createElement("button");
	block.className = "block";
	button.type = "button";
	button.textContent = "Copy";
	button.addEventListener("click", async () => {
		try {
			await write(copied(code.textContent));
			button.textContent = "Copied";
		} catch {
			button.textContent = "Not copied";
		}
		setTimeout(() => { button.textContent = "Copy"; }, 2000);
	});
	code.parentElement.replaceWith(block);
	block.append(code.parentElement, button);
}
