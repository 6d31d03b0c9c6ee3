/* streampca._native.kernels: the inner loops of a row, on the stable ABI of CPython 3.11.
 *
 * No function keeps state, draws randomness or handles a key. Each checks type, shape, alignment and writability of its
 * arrays, holds the GIL and runs no Python code: handlers of signals run between calls, so that each call is atomic.
 * The functions have the names, the arguments and the bits of the numpy code beside which they are called.
 */
#define Py_LIMITED_API 0x030B0000
/* None is returned by Py_NewRef, not by Py_RETURN_NONE: headers of Python 3.12 and 3.13 take no reference there, also for
   the stable ABI of 3.11, which counts them. */
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define LATTICE 1048576.0 /* steps of the lattice in 1 */
#define GRID 1073741824.0   /* steps of scoring in 1 */
#define CHUNK 512         /* coordinates that stay in the first cache */
#define DRAWS 8192        /* normals of one call of the cipher: even */
#define MAGIC 6144.0      /* a sum with it is rounded to 2^-40, the step of the lattice of sums */
#define MOST 64           /* largest number of eigenpairs */
#define APART 1e-9        /* least distance of two eigenvalues, over the norm */
#define RESIDUAL 1e-12    /* largest residual, over the norm, and largest inner product of two vectors */

#define NAME(x) base_##x
#define WIDTH 2
#include "kernels.h"
#undef NAME
#undef WIDTH

#if defined(__x86_64__) && !defined(STREAMPCA_BASELINE)
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
#define NAME(x) avx2_##x
#define WIDTH 4
#include "kernels.h"
#undef NAME
#undef WIDTH
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#define PICK(f) (__builtin_cpu_supports("avx2") ? avx2_##f : base_##f)
#else
#define PICK(f) base_##f
#endif

/* ---- arguments --------------------------------------------------------------------------------------------- */

typedef struct {
  void *data;
  int64_t n, m; /* shape: (n,) or (n, m) */
  double number;
  int64_t integer;
} Arg;

typedef struct {
  Py_buffer views[16];
  int count;
} Held;

/* Release the buffers of a call: on every way out of it, once. */
static void drop(Held *held) {
  for (int i = 0; i < held->count; i++) PyBuffer_Release(&held->views[i]);
  held->count = 0;
}

/* Release the buffers; the exception is ValueError(why) unless one is set. */
static PyObject *refused(Held *held, const char *why) {
  drop(held);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, why);
  return NULL;
}

/* Read arguments. One letter each: d, D a vector or matrix of doubles; l a vector of integers; w, W, m the same to be
   written; x, y bytes to be read and to be written, aligned as doubles; f a number, i an integer. An array to be written
   shares no memory with any other. */
static int parsed(PyObject *const *args, Py_ssize_t given, const char *letters, Arg *out, Held *held) {
  static const char KINDS[] = "dDwWlmxy";
  int written[16];
  held->count = 0;
  if (given != (Py_ssize_t)strlen(letters)) {
    PyErr_SetString(PyExc_TypeError, "wrong number of arguments");
    return 0;
  }
  for (Py_ssize_t i = 0; i < given; i++) {
    char letter = letters[i];
    if (letter == 'f' || letter == 'i') {
      if (letter == 'f') out[i].number = PyFloat_AsDouble(args[i]);
      else out[i].integer = PyLong_AsLongLong(args[i]);
      if (PyErr_Occurred()) goto bad;
      continue;
    }
    int at = (int)(strchr(KINDS, letter) - KINDS), dimensions = letter >= 'a' ? 1 : 2;
    int writes = strchr("wWmy", letter) != NULL;
    Py_buffer *view = &held->views[held->count];
    if (PyObject_GetBuffer(args[i], view, PyBUF_ND | PyBUF_FORMAT | (writes ? PyBUF_WRITABLE : 0)) < 0) goto bad;
    written[held->count++] = writes;
    const char *format = view->format ? view->format : "B", *kinds = at < 4 ? "d" : at < 6 ? "lq" : "B";
    if (!strchr(kinds, format[0]) || format[1] || view->itemsize != (at < 6 ? 8 : 1) || view->ndim != dimensions ||
        ((uintptr_t)view->buf & 7)) {
      PyErr_Format(PyExc_ValueError, "argument %zd: an aligned array of %d dimensions and of type '%c' is needed", i + 1,
                   dimensions, kinds[0]);
      goto bad;
    }
    out[i].data = view->buf;
    out[i].n = view->shape[0];
    out[i].m = dimensions == 2 ? view->shape[1] : 1;
  }
  for (int i = 0; i < held->count; i++)
    for (int j = 0; j < held->count; j++) {
      const char *one = held->views[i].buf, *other = held->views[j].buf;
      if (i != j && written[i] && one < other + held->views[j].len && other < one + held->views[i].len) {
        PyErr_SetString(PyExc_ValueError, "an array to be written shares memory with another argument");
        goto bad;
      }
    }
  return 1;
bad:
  drop(held);
  return 0;
}

/* Release the buffers and return None. */
static PyObject *none(Held *held) {
  drop(held);
  return Py_NewRef(Py_None);
}

#define DOUBLES(i) ((double *)a[i].data)
#define INTEGERS(i) ((int64_t *)a[i].data)
#define BEGIN(letters)                                             \
  Arg a[16];                                                       \
  Held held;                                                       \
  (void)module;                                                    \
  if (!parsed(args, given, letters, a, &held)) return NULL
#define NEED(condition)                                            \
  if (!(condition)) return refused(&held, "shapes do not fit: " #condition)
#define ENTRY(name) static PyObject *name(PyObject *module, PyObject *const *args, Py_ssize_t given)

/* Entries of a packed matrix of d features. */
static int64_t triangle(int64_t d) { return d * (d + 1) / 2; }

/* ---- rows -------------------------------------------------------------------------------------------------- */

ENTRY(admit) { /* row, factor, out -> square */
  BEGIN("dfW");
  NEED(a[2].n == 1 && a[2].m == a[0].n);
  double square = PICK(admit)(DOUBLES(0), a[1].number, DOUBLES(2), a[0].n);
  drop(&held);
  return PyFloat_FromDouble(square);
}

ENTRY(admit_bounded) { /* row, middle, factor, out -> square */
  BEGIN("dddW");
  NEED(a[1].n == a[0].n && a[2].n == a[0].n && a[3].n == 1 && a[3].m == a[0].n);
  double square = PICK(admit_bounded)(DOUBLES(0), DOUBLES(1), DOUBLES(2), DOUBLES(3), a[0].n);
  drop(&held);
  return PyFloat_FromDouble(square);
}

ENTRY(is_admitted) { /* rows -> bool: on the lattice and inside the unit ball */
  BEGIN("D");
  int admitted = 1;
  for (int64_t i = 0; i < a[0].n && admitted; i++) {
    const double *row = DOUBLES(0) + i * a[0].m;
    int64_t off = 0;
    for (int64_t j = 0; j < a[0].m; j++) off += base_truncated(row[j]) != row[j];
    admitted = !off && PICK(dot)(row, row, a[0].m) <= 1.0;
  }
  drop(&held);
  return PyBool_FromLong(admitted);
}

ENTRY(snap) { /* rows, out, squares, long -> how many rows are outside the ball on the lattice */
  BEGIN("DWwm");
  NEED(a[1].n == a[0].n && a[1].m == a[0].m && a[2].n == a[0].n && a[3].n == a[0].n);
  int64_t count = 0, d = a[0].m;
  for (int64_t i = 0; i < a[0].n; i++) {
    double square = PICK(admit)(DOUBLES(0) + i * d, 1.0, DOUBLES(1) + i * d, d);
    INTEGERS(3)[count] = i;
    DOUBLES(2)[i] = square; /* exact up to 2^13, and larger sums stay above 1 */
    count += !(square <= 1.0);
  }
  drop(&held);
  return PyLong_FromLongLong(count);
}

ENTRY(add_outer) { /* parts, row, out */
  BEGIN("DdW");
  int64_t size = triangle(a[1].n);
  NEED(a[0].n == 2 && a[0].m == size && a[2].n == 2 && a[2].m == size);
  PICK(add_outer)(DOUBLES(0), DOUBLES(0) + size, DOUBLES(1), DOUBLES(2), DOUBLES(2) + size, a[1].n);
  return none(&held);
}

ENTRY(score) { /* rows, basis (d, k), reward, rewards -> reward plus their sum, in order */
  BEGIN("DDfw");
  int64_t d = a[0].m, k = a[1].m;
  NEED(a[1].n == d && a[3].n == a[0].n);
  double total = a[2].number, *columns = PyMem_Malloc(sizeof(double) * (size_t)(d * k + 1));
  if (!columns) {
    PyErr_NoMemory();
    return refused(&held, "");
  }
  for (int64_t j = 0; j < d; j++)
    for (int64_t c = 0; c < k; c++) columns[c * d + j] = DOUBLES(1)[j * k + c];
  for (int64_t i = 0; i < a[0].n; i++) {
    double square = 0.0;
    for (int64_t c = 0; c < k; c++) { /* the products are exact: lattice times grid */
      double product = PICK(dot)(DOUBLES(0) + i * d, columns + c * d, d);
      square += product * product;
    }
    DOUBLES(3)[i] = square;
    total += square;
  }
  PyMem_Free(columns);
  drop(&held);
  return PyFloat_FromDouble(total);
}

/* ---- noise ------------------------------------------------------------------------------------------------- */

/* The ziggurat: factors and bars of the rectangles by field (layer and sign), densities at the edges of the layers. */
typedef struct {
  double *scale, *density;
  int64_t *inside, fields;
  double tail; /* where the tail begins */
} Ziggurat;

/* Further words of one coordinate: the cipher's block of (coordinate, attempt) xor the name, two words each. */
typedef struct {
  PyObject *more;
  uint64_t low, high, attempt, words[2];
  int left, failed;
} Words;

/* A number in (0, 1) from the upper 53 bits of a word. */
static double unit_of(uint64_t word) { return ((double)(word >> 11) + 0.5) * 0x1p-53; }

/* The next word of a coordinate; two are drawn at a time. `failed` is set where the cipher fails. */
static uint64_t next_word(Words *s) {
  if (!s->left) {
    uint64_t pair[2] = {s->low, s->high ^ s->attempt++};
    /* No format with #: headers of Python 3.13 compile it to a function that means another one in 3.11. */
    PyObject *text = PyBytes_FromStringAndSize((char *)pair, sizeof pair);
    PyObject *got = text ? PyObject_CallFunctionObjArgs(s->more, text, NULL) : NULL;
    char *bytes = got ? PyBytes_AsString(got) : NULL;
    s->failed = !bytes || PyBytes_Size(got) < 16 || s->attempt > 1000; /* of probability below 2^-1000 */
    if (!s->failed) memcpy(s->words, bytes, 16);
    Py_XDECREF(text);
    Py_XDECREF(got);
    s->left = 2;
  }
  return s->words[2 - s->left--];
}

/* The normal of a coordinate whose first word gave a value outside its rectangle. */
static double finished(const Ziggurat *z, uint64_t word, double value, Words *s) {
  for (;;) {
    int64_t layer = (int64_t)(word & (uint64_t)(z->fields - 1)) & (z->fields / 2 - 1);
    while (!layer && !s->failed) { /* the tail: Marsaglia's pair of exponentials */
      double beyond = -log(unit_of(next_word(s))) / z->tail;
      if (-2.0 * log(unit_of(next_word(s))) > beyond * beyond) return copysign(z->tail + beyond, value);
    }
    double bar = z->density[layer] + unit_of(next_word(s)) * (z->density[layer + 1] - z->density[layer]);
    if (s->failed || bar < exp(-0.5 * value * value)) return value;
    word = next_word(s); /* another rectangle */
    int64_t field = (int64_t)(word & (uint64_t)(z->fields - 1));
    value = (double)(int64_t)(word >> 13) * z->scale[field];
    if ((int64_t)(word >> 13) < z->inside[field]) return value;
  }
}

/* The words of n blocks from a cipher: of (places[i] + start, 0) xor the name, or of (0, start + i) without places.
   NULL with an exception set. */
static PyObject *drawn(PyObject *cipher, const uint64_t *name, const int64_t *places, int64_t start, int64_t n) {
  PyObject *text = PyBytes_FromStringAndSize(NULL, 16 * n), *got;
  if (!text) return NULL;
  char *blocks = PyBytes_AsString(text);
  for (int64_t i = 0; i < n; i++) {
    uint64_t pair[2] = {name[0], name[1]};
    pair[!places] ^= (uint64_t)(start + (places ? places[i] : i));
    memcpy(blocks + 16 * i, pair, 16);
  }
  got = PyObject_CallFunctionObjArgs(cipher, text, NULL);
  Py_DECREF(text);
  if (!got || (PyBytes_AsString(got) && PyBytes_Size(got) >= 16 * n)) return got;
  Py_DECREF(got);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "the cipher returned too few words");
  return NULL;
}

/* Turn words into the normals of n <= CHUNK coordinates from `start` on. Return 0 with an exception set. */
static int normals_of(const Ziggurat *z, const uint64_t *words, int64_t n, int64_t start, const uint64_t *name, PyObject *more,
                      double *values) {
  int64_t places[CHUNK], count = PICK(ziggurat)(words, n, z->scale, z->inside, z->fields - 1, values, places);
  if (!count) return 1;
  PyObject *got = drawn(more, name, places, start, count);
  int good = got != NULL;
  for (int64_t i = 0; i < count && good; i++) {
    int64_t at = places[i];
    Words source = {more, name[0] ^ (uint64_t)(start + at), name[1], 1, {0, 0}, 2, 0};
    memcpy(source.words, PyBytes_AsString(got) + 16 * i, 16);
    values[at] = finished(z, words[at], values[at], &source);
    good = !source.failed;
  }
  Py_XDECREF(got);
  if (!good && !PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "the cipher returned too few words");
  return good;
}

ENTRY(normals) { /* first, more: ciphers; name (16 bytes), scale, inside, density, tail, out (n,) */
  Arg a[6];
  Held held;
  (void)module;
  if (given != 8) return PyErr_Format(PyExc_TypeError, "wrong number of arguments");
  if (!parsed(args + 2, 6, "xdldfw", a, &held)) return NULL;
  Ziggurat z = {DOUBLES(1), DOUBLES(3), INTEGERS(2), a[1].n, a[4].number};
  NEED(a[0].n == 16 && z.fields > 1 && (z.fields & (z.fields - 1)) == 0 && a[2].n == z.fields && a[3].n >= z.fields / 2 + 1);
  uint64_t name[2];
  memcpy(name, a[0].data, 16);
  int good = 1;
  for (int64_t start = 0; start < a[5].n && good; start += DRAWS) {
    int64_t size = a[5].n - start < DRAWS ? a[5].n - start : DRAWS;
    PyObject *got = drawn(args[0], name, NULL, start / 2, (size + 1) / 2);
    good = got != NULL;
    for (int64_t at = 0; at < size && good; at += CHUNK) {
      const uint64_t *words = (const uint64_t *)PyBytes_AsString(got) + at;
      good = normals_of(&z, words, size - at < CHUNK ? size - at : CHUNK, start + at, name, args[1], DOUBLES(5) + start + at);
    }
    Py_XDECREF(got);
  }
  return good ? none(&held) : refused(&held, "");
}

ENTRY(plus) { /* part, whole, noise, weights, magic, step, out */
  BEGIN("ddddffw");
  int64_t n = a[0].n;
  NEED(a[1].n == n && a[2].n == n && a[3].n == n && a[6].n == n);
  PICK(plus)(DOUBLES(0), DOUBLES(1), DOUBLES(2), DOUBLES(3), a[4].number, a[5].number, DOUBLES(6), n);
  return none(&held);
}

ENTRY(buffered_step) { /* fresh, buffers, total, mix, rate, scale, keep, after, out */
  BEGIN("dDdddffWw");
  int64_t n = a[0].n, c = a[1].n;
  NEED(a[1].m == n && a[2].n == n && a[3].n == c && a[4].n == c && a[7].n == c && a[7].m == n && a[8].n == n);
  PICK(buffered_step)(DOUBLES(0), DOUBLES(1), DOUBLES(2), DOUBLES(3), DOUBLES(4), c, n, n, a[5].number, a[6].number, DOUBLES(7),
                      DOUBLES(8));
  return none(&held);
}

/* ---- smoothing --------------------------------------------------------------------------------------------- */

ENTRY(filter_gain) { /* covariance, response, omega, theta, drift, scatter, scale, share, gain */
  BEGIN("WWddffffw");
  int64_t n = a[0].n;
  NEED(n >= 3 && n <= 128 && a[0].m == n && a[1].n == n && a[1].m == n && a[2].n == n - 3 && a[3].n == n - 3 && a[8].n == n);
  double work[5 * 128];
  PICK(filter_gain)(DOUBLES(0), DOUBLES(1), DOUBLES(2), DOUBLES(3), a[4].number, a[5].number, a[6].number, a[7].number,
                    DOUBLES(8), work, n);
  return none(&held);
}

ENTRY(smoothed_sums) { /* released, before, mean, total, buffers, omega, theta, gain, scale, share, decayed, out (2, n) */
  BEGIN("ddddDdddffWW");
  int64_t n = a[0].n, c = a[4].n;
  NEED(c > 0 && a[1].n == n && a[2].n == n && a[3].n == n && a[4].m == n && a[5].n == c && a[6].n == c && a[7].n == c + 3);
  NEED(a[10].n == c && a[10].m == n && a[11].n == 2 && a[11].m == n);
  PICK(smoothed_sums)(DOUBLES(0), DOUBLES(1), DOUBLES(2), DOUBLES(3), DOUBLES(4), DOUBLES(5), DOUBLES(6), DOUBLES(7), c,
                      a[8].number, a[9].number, DOUBLES(10), DOUBLES(11), DOUBLES(11) + n, n);
  return none(&held);
}

/* ---- eigenvectors ------------------------------------------------------------------------------------------ */

/* Scratch memory of a call, which the caller frees; NULL with an exception set. */
static double *workspace(Held *held, int64_t doubles) {
  double *work = PyMem_Malloc(sizeof(double) * (size_t)doubles);
  if (!work) {
    drop(held);
    PyErr_NoMemory();
  }
  return work;
}

ENTRY(top_pairs) { /* packed, values, basis (d, k) -> bool: False if they are not certified */
  BEGIN("dwW");
  int64_t d = a[2].n, k = a[2].m;
  NEED(k >= 1 && k <= d && a[0].n == triangle(d) && a[1].n == k);
  int found = 0;
  if (k <= MOST) {
    double *work = workspace(&held, 2 * d * d + (13 + k) * d + 8 * k);
    if (!work) return NULL;
    found = PICK(top_pairs)(DOUBLES(0), DOUBLES(1), DOUBLES(2), work, d, k);
    PyMem_Free(work);
  }
  drop(&held);
  return PyBool_FromLong(found);
}

ENTRY(certified) { /* diagonal, beside, values, vectors (k, d), norm -> bool: are they the top pairs of T */
  BEGIN("dddDf");
  int64_t d = a[0].n, k = a[2].n;
  NEED(k >= 1 && k <= d && a[1].n >= d - 1 && a[3].n == k && a[3].m == d);
  double *squares = workspace(&held, d);
  if (!squares) return NULL;
  squares[0] = 0.0;
  for (int64_t i = 1; i < d; i++) squares[i] = DOUBLES(1)[i - 1] * DOUBLES(1)[i - 1];
  int proved = PICK(certified)(DOUBLES(0), DOUBLES(1), squares, DOUBLES(2), DOUBLES(3), a[4].number, d, k);
  PyMem_Free(squares);
  drop(&held);
  return PyBool_FromLong(proved);
}

ENTRY(power_step) { /* packed, span (k, d), shift, basis (k, d) */
  BEGIN("dDfW");
  int64_t k = a[1].n, d = a[1].m;
  NEED(k >= 1 && k <= d && a[0].n == triangle(d) && a[3].n == k && a[3].m == d);
  double *work = workspace(&held, d * k + k);
  if (!work) return NULL;
  PICK(power_step)(DOUBLES(0), DOUBLES(1), a[2].number, DOUBLES(3), work, d, k);
  PyMem_Free(work);
  return none(&held);
}

ENTRY(ritz_pairs) { /* packed, span (k, d), values, basis (d, k) */
  BEGIN("dDwW");
  int64_t k = a[1].n, d = a[1].m;
  NEED(k >= 1 && k <= d && a[0].n == triangle(d) && a[2].n == k && a[3].n == d && a[3].m == k);
  double *work = workspace(&held, 2 * d * k + 2 * k * k);
  if (!work) return NULL;
  PICK(ritz_pairs)(DOUBLES(0), DOUBLES(1), DOUBLES(2), DOUBLES(3), work, d, k);
  PyMem_Free(work);
  return none(&held);
}

#include "plan.h"

/* ---- the module -------------------------------------------------------------------------------------------- */

#define ROW(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}
static PyMethodDef methods[] = {
    ROW(add_outer),   ROW(admit), ROW(admit_bounded), ROW(buffered_step), ROW(certified), ROW(filter_gain),
    ROW(is_admitted), ROW(normals), ROW(plus),        ROW(power_step),    ROW(ritz_pairs), ROW(score),
    ROW(smoothed_sums), ROW(snap), ROW(top_pairs),    {NULL, NULL, 0, NULL}};

/* Fill a new module: multi-phase initialization, so that each interpreter has its own. */
static int begin(PyObject *module) {
  PyObject *type = PyType_FromModuleAndSpec(module, &plan_spec, NULL);
  int failed = !type || PyModule_AddObjectRef(module, "Plan", type) < 0;
  Py_XDECREF(type);
  return failed ? -1 : PyModule_AddIntConstant(module, "VERSION", 4);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, begin}, {0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "streampca._native.kernels", NULL, 0, methods, slots,
                                        NULL,                  NULL,                        NULL};
PyMODINIT_FUNC PyInit_kernels(void) { return PyModuleDef_Init(&definition); }
