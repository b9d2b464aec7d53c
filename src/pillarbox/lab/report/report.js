// Conveniences only: open and close all, and what older browsers do not do by themselves.
document.documentElement.classList.add("script");
(() => {
  const all = () => document.querySelectorAll("details");
  const set = (open) => all().forEach((one) => { one.open = open; });
  document.getElementById("open-all")?.addEventListener("click", () => set(true));
  document.getElementById("close-all")?.addEventListener("click", () => set(false));
  const reveal = () => {
    const there = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const cell = there?.closest("details");
    if (cell) { cell.open = true; there.scrollIntoView(); }
  };
  addEventListener("hashchange", reveal);
  reveal();
  let before = [];
  addEventListener("beforeprint", () => { before = [...all()].map((one) => [one, one.open]); set(true); });
  addEventListener("afterprint", () => before.forEach(([one, open]) => { one.open = open; }));
})();
