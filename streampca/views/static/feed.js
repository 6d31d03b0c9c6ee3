"use strict";
// Server-sent events over fetch, not EventSource: the token travels in a header.
class Feed {
  constructor(url, token, on) {
    this.url = url; this.token = token; this.on = on;
    this.wait = 500; this.quiet = 25000;
    this.run();
    window.addEventListener("online", () => this.again && this.again());
  }

  async run() {
    for (;;) {
      const stop = new AbortController();
      try {
        const headers = { Accept: "text/event-stream" };
        if (this.token) headers.Authorization = "Bearer " + this.token;
        const answer = await fetch(this.url, { headers, signal: stop.signal, cache: "no-store", credentials: "omit" });
        if (answer.status === 401) { this.on.refused(); return; }
        if (!answer.ok) throw new Error(String(answer.status));
        await this.read(answer.body.getReader(), stop);
      } catch (problem) { /* reported below, and tried again */ }
      stop.abort();
      this.on.lost(this.wait);
      await new Promise((resolve) => { this.again = resolve; setTimeout(resolve, this.wait); });
      this.again = null;
      this.wait = Math.min(2 * this.wait, 8000);
    }
  }

  async read(reader, stop) {
    const decoder = new TextDecoder();
    let text = "";
    for (;;) {
      const timer = setTimeout(() => stop.abort(), this.quiet); // the server sends something every ten seconds
      const { value, done } = await reader.read();
      clearTimeout(timer);
      if (done) return;
      this.wait = 500;
      text += decoder.decode(value, { stream: true });
      for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) this.take(text.slice(0, end));
    }
  }

  take(block) {
    const data = block.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
    if (data.length) this.on.message(JSON.parse(data.join("\n")));
  }
}
