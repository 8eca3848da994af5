import { App } from "./app.js";
import { start } from "./live.js";
import { watch } from "./state.js";
import { applyTheme } from "./theme.js";
import { html, render } from "./ui.js";

const root = document.getElementById("app");
const draw = () => render(html`<${App} />`, root);

applyTheme();
root.replaceChildren();
watch(draw);
draw();
start();
