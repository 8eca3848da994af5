// Dark or light: as the system says, or as the reader chose in this browser.

const key = "spillway-theme";
const themes = ["auto", "dark", "light"];

/** auto, dark or light. */
export function theme() {
  try {
    const kept = localStorage.getItem(key);
    return themes.includes(kept) ? kept : "auto";
  } catch {
    return "auto"; // storage may be forbidden
  }
}

/** Shows the page in the chosen theme. */
export function applyTheme() {
  const chosen = theme();
  if (chosen === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  dispatchEvent(new Event("themechange"));
}

/** Keeps the choice and shows it. */
export function chooseTheme(chosen) {
  try {
    localStorage.setItem(key, chosen);
  } catch { /* it holds until the page is loaded again */ }
  applyTheme();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("themechange")));

/** The value of a colour of style.css, for canvases. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
