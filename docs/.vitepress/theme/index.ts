import DefaultTheme from "vitepress/theme";
import type { Theme } from "vitepress";
import { h } from "vue";
import Mermaid from "./Mermaid.vue";
import Recording from "./Recording.vue";
import "./tables.css";

export default {
  extends: DefaultTheme,
  // The right half of the start page.
  Layout: () => h(DefaultTheme.Layout, null, { "home-hero-image": () => h(Recording) }),
  enhanceApp({ app }) {
    app.component("Mermaid", Mermaid);
  },
} satisfies Theme;
