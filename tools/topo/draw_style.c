// draw_style.c: colours and dashes of the picture, for a light and a dark background.
//
// Channels take turns with colours that the colour-blind, too, tell apart; each graph has dashes of its own, and begins
// with another colour.
#include "base/util.h"
#include "draw_priv.h"

typedef struct rule {
  const char *what, *light, *dark;
} rule;

static const rule rules[] = {
    {".tt-back", "fill:#ffffff", "fill:#15181c"},
    {".tt-text", "fill:#1d2329", "fill:#e6e9ec"},
    {".tt-soft", "fill:#57606a", "fill:#9aa4ae"},
    {".tt-panel", "fill:#f6f8fa;stroke:#d0d7de", "fill:#1b2026;stroke:#39424c"},
    {".tt-gpu rect", "fill:#dcf3c8;stroke:#4c9a2a", "fill:#26401a;stroke:#76b947"},
    {".tt-rank rect", "fill:#dff2f1;stroke:#2f8b88", "fill:#163836;stroke:#4fb8b3"},
    {".tt-dev rect", "fill:#f2f6ee;stroke:#9db98c;stroke-dasharray:4 3",
     "fill:#20281b;stroke:#5d7a4a;stroke-dasharray:4 3"},
    {".tt-cpu rect", "fill:#dbe9fb;stroke:#3b73b9", "fill:#1c3350;stroke:#6ea3e0"},
    {".tt-pci rect", "fill:#eceff2;stroke:#7b8794", "fill:#2a3038;stroke:#8b97a3"},
    {".tt-nic rect", "fill:#fde8c8;stroke:#c07a1a", "fill:#46330f;stroke:#e0a24a"},
    {".tt-net rect", "fill:#fff4de;stroke:#c07a1a", "fill:#3a2d12;stroke:#e0a24a"},
    {".tt-nvs rect", "fill:#cfead9;stroke:#2b8a57", "fill:#173a29;stroke:#55c08a"},
    {".tt-LOC", "stroke:#8a939c;stroke-dasharray:3 3", "stroke:#79838d;stroke-dasharray:3 3"},
    {".tt-NVL", "stroke:#3f9142", "stroke:#6fbf5f"},
    {".tt-C2C", "stroke:#8250df", "stroke:#b794f4"},
    {".tt-PCI", "stroke:#7b8794", "stroke:#8b97a3"},
    {".tt-MEM", "stroke:#2f8b88", "stroke:#4fb8b3"},
    {".tt-SYS", "stroke:#3b73b9", "stroke:#6ea3e0"},
    {".tt-NET", "stroke:#c07a1a", "stroke:#e0a24a"},
    {".tt-number", "fill:#3d4650;stroke:#ffffff", "fill:#c3ccd4;stroke:#15181c"},
};

// On a light background, on a dark one. Neighbours differ in hue. draw_style_test.c says how far any two are from each
// other, and how the colour-blind see that.
static const char *const colours[XP_COLOURS][2] = {
    {"#1946c6", "#369ff8"}, {"#d27b00", "#fd9b11"}, {"#9d1c81", "#da3fda"}, {"#056437", "#17a75e"},
    {"#df4bc9", "#a04d94"}, {"#5e1e08", "#a94713"}, {"#6089f1", "#0859f7"}, {"#249152", "#49e697"},
    {"#676767", "#9aa0a0"}, {"#0e2b83", "#a7c3f2"}, {"#995e11", "#faba62"}, {"#4f173e", "#e184c5"},
    {"#181b19", "#616967"}, {"#95919a", "#d1d6d2"}, {"#0f3d2b", "#14764b"},
};

static const char *const dashes[TT_GRAPH_KINDS] = {"", "8 4", "10 3 2 3", "5 3", "2 3"};

int xp_colour_of(int kind, int channel)
{
  return (channel + 4 * kind) % XP_COLOURS;
}

static void write_channel_colours(int dark, FILE *out)
{
  for (int c = 0; c < XP_COLOURS; c++) {
    fprintf(out, ".tt-c%d{stroke:%s}\n.tt-m%d{fill:%s}\n", c, colours[c][dark], c, colours[c][dark]);
  }
}

void xp_svg_colours(int dark, FILE *out)
{
  for (size_t i = 0; i < TT_COUNT(rules); i++) {
    fprintf(out, "%s{%s}\n", rules[i].what, dark ? rules[i].dark : rules[i].light);
  }
  write_channel_colours(dark, out);
}

void xp_svg_style(FILE *out)
{
  fputs("<style>\n", out);
  xp_svg_colours(0, out);
  fputs("text{font-family:sans-serif}\n"
        ".tt-link,.tt-edge{fill:none}\n"
        ".tt-edge{stroke-width:2.4}\n"
        ".tt-number{stroke-width:2.5px;paint-order:stroke;stroke-linejoin:round}\n"
        ".tt-box text{text-anchor:middle}\n"
        ".tt-legend{font-size:11px}\n",
        out);
  for (int k = 0; k < TT_GRAPH_KINDS; k++) {
    if (dashes[k][0] != 0) {
      fprintf(out, ".tt-g%d{stroke-dasharray:%s}\n", k, dashes[k]);
    }
  }
  fputs("</style>\n<defs>\n", out);
  for (int c = 0; c < XP_COLOURS; c++) {
    fprintf(out,
            "<marker id=\"tt-a%d\" viewBox=\"0 0 8 8\" refX=\"6.5\" refY=\"4\" markerWidth=\"9\" markerHeight=\"9\" "
            "markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path class=\"tt-m%d\" d=\"M0 0L8 4L0 8Z\"/></marker>\n",
            c, c);
  }
  fputs("</defs>\n", out);
}
