// A fetch with certificates of one's own, for Node, whose own fetch takes none.

/** As fetch, as far as the client needs it, over node:https. `tls` has ca, cert and key, as node:tls takes them. */
export function fetchOverTLS(tls) {
  let agent;
  return async (url, { method, headers, body, signal }) => {
    // Only now: a browser has neither, and needs neither.
    const [https, { Readable }] = await Promise.all([import("node:https"), import("node:stream")]);
    // The server closes what is idle for two minutes.
    agent ??= new https.Agent({ keepAlive: true, timeout: 60_000, ...tls });
    return new Promise((resolve, reject) => {
      const request = https.request(url, { method, headers: Object.fromEntries(new Headers(headers)), agent, signal });
      request.on("response", (answer) => {
        const empty = [204, 304].includes(answer.statusCode);
        if (empty) answer.resume();
        const { statusCode: status } = answer;
        resolve(new Response(empty ? null : Readable.toWeb(answer), { status, headers: new Headers(pairs(answer)) }));
      });
      request.on("error", (error) => reject(new TypeError("fetch failed", { cause: error })));
      request.end(body === undefined || body === null ? undefined : String(body));
    });
  };
}

/** The headers of an answer as pairs. */
function pairs({ rawHeaders }) {
  const all = [];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) all.push([rawHeaders[i], rawHeaders[i + 1]]);
  return all;
}
