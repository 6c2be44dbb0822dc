"use strict";
// Fetches the page again while it is visible, and replaces its content if it changed. Folded parts stay as they are.
(() => {
  const main = document.querySelector("main");
  let tag = null;
  const folded = (root) => [...root.querySelectorAll("details")];
  async function refresh() {
    if (document.hidden) return;
    const headers = tag ? { "If-None-Match": tag } : {};
    const response = await fetch(location.pathname, { headers, cache: "no-store" });
    if (response.status !== 200) return;
    const isFirst = tag === null;
    tag = response.headers.get("ETag");
    if (isFirst) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html").querySelector("main");
    if (!page) return;
    const open = folded(main).map((item) => item.open);
    folded(page).forEach((item, index) => { if (index < open.length) item.open = open[index]; });
    main.replaceChildren(...page.childNodes);
  }
  const again = () => refresh().catch(() => {}).finally(() => setTimeout(again, 3000));
  again();
})();
