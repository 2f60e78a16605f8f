// draw_style_test.c: colours of channels stand out from the background, and those of different graphs from each other,
// also for people who lack one of the three receptors.
#include "draw_rig.h"

#include <math.h>

#include "draw_priv.h"

enum { EYES = 4, COLOURS = XP_COLOURS };

// How people without one kind of receptor see linear red, green and blue (Machado, Oliveira and Fernandes 2009,
// severity 1). First: with all.
static const double eyes[EYES][3][3] = {
    {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
    {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
    {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
    {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
};

typedef struct colour {
  double v[3];
} colour;

// Linear light of sRGB.
static colour linear(unsigned rgb)
{
  colour c;
  for (int i = 0; i < 3; i++) {
    double s = (rgb >> (16 - 8 * i) & 0xff) / 255.0;
    c.v[i] = s <= 0.04045 ? s / 12.92 : pow((s + 0.055) / 1.055, 2.4);
  }
  return c;
}

static colour seen(const double eye[3][3], colour c)
{
  colour out;
  for (int i = 0; i < 3; i++) {
    out.v[i] = fmin(1, fmax(0, eye[i][0] * c.v[0] + eye[i][1] * c.v[1] + eye[i][2] * c.v[2]));
  }
  return out;
}

static double brightness(colour c)
{
  return 0.2126 * c.v[0] + 0.7152 * c.v[1] + 0.0722 * c.v[2];
}

// As the accessibility guidelines of the web count: 1 to 21; 3 is what lines need.
static double contrast(colour a, colour b)
{
  double x = brightness(a) + 0.05, y = brightness(b) + 0.05;
  return x > y ? x / y : y / x;
}

static double bend(double t)
{
  return t > 0.008856 ? cbrt(t) : 7.787 * t + 16.0 / 116;
}

static colour lab(colour c)
{
  double x = bend((0.4124 * c.v[0] + 0.3576 * c.v[1] + 0.1805 * c.v[2]) / 0.9505), y = bend(brightness(c));
  double z = bend((0.0193 * c.v[0] + 0.1192 * c.v[1] + 0.9505 * c.v[2]) / 1.089);
  return (colour){{116 * y - 16, 500 * (x - y), 200 * (y - z)}};
}

// Distance in CIELAB: 2.3 can just be told apart side by side.
static double distance(colour a, colour b)
{
  colour x = lab(a), y = lab(b);
  return sqrt(pow(x.v[0] - y.v[0], 2) + pow(x.v[1] - y.v[1], 2) + pow(x.v[2] - y.v[2], 2));
}

// The colour that the rule `what` gives.
static colour rule(const char *text, const char *what)
{
  const char *at = strstr(text, what);
  assert_non_null(at);
  at = strchr(at, '#');
  assert_non_null(at);
  return linear((unsigned)strtoul(at + 1, NULL, 16));
}

static void check_colours(int dark)
{
  rig_out o;
  colour c[COLOURS];
  rig_open(&o);
  xp_svg_colours(dark, o.f);
  fflush(o.f);
  colour back = rule(o.text, ".tt-back{");
  for (int i = 0; i < COLOURS; i++) {
    char line[32], head[32];
    snprintf(line, sizeof(line), ".tt-c%d{stroke", i);
    snprintf(head, sizeof(head), ".tt-m%d{fill", i);
    c[i] = rule(o.text, line);
    assert_true(distance(c[i], rule(o.text, head)) < 0.01);
    assert_true(contrast(c[i], back) >= 3);
  }
  for (int i = 0; i < COLOURS * COLOURS * EYES; i++) {
    int a = i / EYES / COLOURS, b = i / EYES % COLOURS;
    double d = distance(seen(eyes[i % EYES], c[a]), seen(eyes[i % EYES], c[b]));
    if (a < b && d < 11) {
      fail_msg("%s: colours %d and %d are %.1f apart for eyes %d", dark ? "dark" : "light", a, b, d, i % EYES);
    }
  }
  for (int i = 0; i < 8; i++) { // channels that are shown beside each other are far from alike
    assert_true(distance(c[i], c[(i + 1) % 8]) > 40);
  }
  rig_close(&o);
}

static void test_colours(void **state)
{
  (void)state;
  check_colours(0);
  check_colours(1);
}

// No two graphs have the same dashes.
static void test_dashes(void **state)
{
  (void)state;
  rig_out o;
  char dashes[TT_GRAPH_KINDS][32] = {{0}};
  rig_open(&o);
  xp_svg_style(o.f);
  fflush(o.f);
  for (int k = 0; k < TT_GRAPH_KINDS; k++) {
    char what[32];
    int n = snprintf(what, sizeof(what), "\n.tt-g%d{stroke-dasharray:", k);
    const char *at = strstr(o.text, what);
    snprintf(dashes[k], sizeof(dashes[k]), "%.*s", at != NULL ? (int)strcspn(at + n, "}") : 0,
             at != NULL ? at + n : "");
    for (int j = 0; j < k; j++) {
      assert_string_not_equal(dashes[j], dashes[k]);
    }
  }
  rig_close(&o);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_colours), cmocka_unit_test(test_dashes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
