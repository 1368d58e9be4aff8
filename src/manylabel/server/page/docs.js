"use strict";
const dark = matchMedia("(prefers-color-scheme: dark)");
const followSystem = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", followSystem);
followSystem();
SwaggerUIBundle({ url: "openapi.json", domNode: document.getElementById("docs"), tryItOutEnabled: true });
