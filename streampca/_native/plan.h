/* Plan: the constants of a run, and the fused steps of a row that is a release, or of the tenants of a fleet. Immutable.
 *
 * What changes is an arena, an array of bytes that holds doubles and is never written again after its row:
 *
 *   whole S | rest S | noise S | buffers c S | span k d | scoring k d (and d + 1 about a mean)
 *
 * S entries of the packed exact sum of D features (d, or d + 1 about a mean), P of the released matrix of d. `take` and
 * `release` write every byte of a new arena.
 */

typedef struct {
  PyObject_HEAD
  int64_t d, D, k, c, S, P, score, arena; /* sizes in doubles */
  double keep, norm;                      /* norm of the rows: published means are in its units */
  double constant, weight2;               /* constant 0: no mean is taken out */
  double *mix, *rate, *weights, *middle, *factor; /* middle and factor of public bounds, or NULL */
  Ziggurat ziggurat;
  int tracking;
} Plan;

/* A copy of the numbers of an array, which the plan owns; NULL without memory. */
static void *copied(const Arg *arg) {
  size_t bytes = 8 * (size_t)(arg->n ? arg->n : 1);
  void *copy = PyMem_Malloc(bytes);
  if (copy) memcpy(copy, arg->data, 8 * (size_t)arg->n);
  return copy;
}

/* Plan(d, k, mix, rate, weights, keep, scale, inside, density, tail, tracking, constant, weight2, norm, middle, factor);
   middle and factor are empty without public bounds. */
static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  Arg a[16];
  Held held;
  PyObject *items[16];
  (void)keywords;
  Py_ssize_t given = PyTuple_Size(args);
  for (Py_ssize_t i = 0; i < given && i < 16; i++) items[i] = PyTuple_GetItem(args, i);
  if (!parsed(items, given, "iidddfdldfifffdd", a, &held)) return NULL;
  int64_t d = a[0].integer, k = a[1].integer, D = d + (a[11].number > 0.0), S = triangle(D), fields = a[6].n;
  NEED(d >= 1 && d <= 4096 && k >= 1 && k <= d && k <= MOST);
  NEED(a[2].n >= 1 && a[3].n == a[2].n && a[4].n == S);
  NEED(a[15].n == a[14].n && (a[14].n == 0 || a[14].n == d));
  NEED(fields > 1 && (fields & (fields - 1)) == 0 && a[7].n == fields && a[8].n >= fields / 2 + 1);
  Plan *p = (Plan *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (!p) return refused(&held, "");
  p->d = d, p->D = D, p->k = k, p->c = a[2].n, p->S = S, p->P = triangle(d), p->ziggurat.fields = fields;
  p->constant = a[11].number, p->weight2 = a[12].number, p->norm = a[13].number, p->keep = a[5].number, p->ziggurat.tail = a[9].number;
  p->tracking = a[10].integer != 0;
  p->score = d * k + (D > d ? D : 0);
  p->arena = (3 + p->c) * S + d * k + p->score;
  p->mix = copied(&a[2]), p->rate = copied(&a[3]), p->weights = copied(&a[4]);
  p->ziggurat.scale = copied(&a[6]), p->ziggurat.inside = copied(&a[7]), p->ziggurat.density = copied(&a[8]);
  int bounded = a[14].n > 0, copies = 1;
  if (bounded) copies = (p->middle = copied(&a[14])) && (p->factor = copied(&a[15]));
  drop(&held);
  if (!copies || !p->mix || !p->rate || !p->weights || !p->ziggurat.scale || !p->ziggurat.inside ||
      !p->ziggurat.density) {
    Py_DECREF(p);
    return PyErr_NoMemory();
  }
  return (PyObject *)p;
}

/* Release the tables, which may be NULL after a failed plan_new, and the reference to the type. */
static void plan_free(PyObject *self) {
  Plan *p = (Plan *)self;
  PyTypeObject *type = Py_TYPE(self);
  void *tables[] = {p->mix,    p->rate, p->weights, p->ziggurat.scale, p->ziggurat.inside, p->ziggurat.density,
                    p->middle, p->factor};
  for (int i = 0; i < 8; i++) PyMem_Free(tables[i]);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

/* Hold the doubles of an object that is a vector of d doubles; 0 for anything else, which the caller admits. */
static int held_row(const Plan *p, PyObject *object, Held *row) {
  Py_buffer *view = row->views;
  row->count = 0;
  if (!PyObject_CheckBuffer(object)) return 0;
  if (PyObject_GetBuffer(object, view, PyBUF_ND | PyBUF_FORMAT) < 0) {
    PyErr_Clear();
    return 0;
  }
  row->count = 1;
  const char *format = view->format ? view->format : "B";
  int fits = format[0] == 'd' && !format[1] && view->ndim == 1 && view->shape[0] == p->d && !((uintptr_t)view->buf & 7);
  if (!fits) drop(row);
  return fits;
}

/* Admit a row, with the constant of a row about a mean, and return its square: above 1, or nan, for a row outside the
   ball or its bounds. A factor of nan stands for the public bounds, and a factor of 0 for an absent row, which has no
   constant: it adds nothing. */
static double admitted(const Plan *p, const double *row, double factor, double *out) {
  int bounded = factor != factor && p->middle;
  double square = bounded ? PICK(admit_bounded)(row, p->middle, p->factor, out, p->d) : PICK(admit)(row, factor, out, p->d);
  if (p->D > p->d) out[p->d] = factor == 0.0 ? 0.0 : p->constant;
  return square;
}

/* take(row, factor, old, new) -> (square, reward): admit a row, score it, and add its outer product. None for anything
   but a vector of d doubles. Of a row that is not admitted as it is, only its square is computed. */
static PyObject *plan_take(PyObject *self, PyObject *const *args, Py_ssize_t given) {
  Plan *p = (Plan *)self;
  Arg a[3];
  Held held, row;
  if (given != 4) return PyErr_Format(PyExc_TypeError, "wrong number of arguments");
  if (!held_row(p, args[0], &row)) return Py_NewRef(Py_None);
  PyObject *made = NULL;
  if (parsed(args + 1, 3, "fxy", a, &held)) {
    int64_t d = p->d, k = p->k, S = p->S;
    if (a[1].n != 8 * p->arena || a[2].n != 8 * p->arena) {
      refused(&held, "shapes do not fit: an arena of this plan is needed");
    } else {
      const double *old = a[1].data, *basis = old + p->arena - p->score;
      double *new = a[2].data, *r = new + p->arena - p->score; /* scoring is written last: until then the row is there */
      double reward = 0.0, square = admitted(p, row.views->buf, a[0].number, r);
      if (square <= 1.0) {
        for (int64_t c = 0; c < k; c++) {
          double product = PICK(dot)(r, basis + c * d, d);
          reward += product * product;
        }
        if (p->D > d) reward += 2.0 * PICK(dot)(r, basis + d * k, d + 1);
        PICK(add_outer)(old, old + S, r, new, new + S, p->D);
      }
      drop(&held);
      made = Py_BuildValue("dd", square, reward);
    }
  }
  drop(&row);
  return made;
}

/* Draw the noise of one release, correlate it, add the exact sum and round. Return 0 with an exception set. */
static int draw(const Plan *p, const uint64_t *name, PyObject *first, PyObject *more, double scale, double step,
                const double *old, double *new, double *raw) {
  int64_t S = p->S;
  double z[CHUNK];
  int good = 1;
  for (int64_t start = 0; start < S && good; start += DRAWS) {
    int64_t size = S - start < DRAWS ? S - start : DRAWS;
    PyObject *got = drawn(first, name, NULL, start / 2, (size + 1) / 2);
    good = got != NULL;
    for (int64_t at = 0; at < size && good; at += CHUNK) { /* normals stay in the first cache until they are used */
      int64_t n = size - at < CHUNK ? size - at : CHUNK, from = start + at;
      const uint64_t *words = (const uint64_t *)PyBytes_AsString(got) + at; /* data of a bytes object are aligned */
      if (!(good = normals_of(&p->ziggurat, words, n, from, name, more, z))) break;
      double *noise = new + 2 * S + from;
      PICK(buffered_step)(z, old + 3 * S + from, old + 2 * S + from, p->mix, p->rate, p->c, S, n, scale, p->keep,
                          new + 3 * S + from, noise);
      PICK(plus)(new + S + from, new + from, noise, p->weights + from, MAGIC, step, raw + from, n);
    }
    Py_XDECREF(got);
  }
  return good;
}

/* A published mean in units of norm = 1, as readers of a release compute it, in scratch memory. */
static const double *of_unit(const Plan *p, const double *mean, double *scratch) {
  if (!mean) return NULL;
  for (int64_t j = 0; j < p->d; j++) scratch[j] = mean[j] / p->norm;
  return scratch;
}

/* The grid of releases whose noise has this standard deviation, as linalg.lattice.grid_step. */
static double grid_step(double std) {
  int exponent;
  double mantissa = frexp(std, &exponent);
  exponent -= (mantissa == 0.5) + 20;
  return ldexp(1.0, exponent > -40 ? exponent : -40);
}

/* Parse the arguments of a release: the name of the noise, two functions that draw it, which stay in args, and others. */
static int parsed_release(PyObject *const *args, Py_ssize_t given, const char *letters, Arg *out, Held *held) {
  PyObject *items[16] = {0};
  Py_ssize_t count = (Py_ssize_t)strlen(letters);
  if (given == count + 2) {
    items[0] = args[0];
    memcpy(items + 1, args + 3, sizeof(*args) * (size_t)(count - 1));
  }
  return parsed(items, given - 2, letters, out, held); /* which refuses another number of them */
}

/* release(name, first, more, scale, std, old, new, public, rows, least, variance) -> (bound on the noise, number of rows
   divided by, their noisy number) of a release about the mean, else None. Public: the matrix, P; with tracking the span,
   k d; about a mean the mean and the sums, 2 d. rows is the public number of rows; least and variance are those of
   linalg.centering. */
static PyObject *plan_release(PyObject *self, PyObject *const *args, Py_ssize_t given) {
  Plan *p = (Plan *)self;
  Arg a[9];
  Held held;
  if (!parsed_release(args, given, "xffxywfff", a, &held)) return NULL;
  int64_t d = p->d, k = p->k, S = p->S, spans = p->tracking ? d * k : 0, means = p->D > d ? 2 * d : 0;
  NEED(a[0].n >= 16 && a[3].n == 8 * p->arena && a[4].n == 8 * p->arena && a[5].n == p->P + spans + means);
  const double *old = a[3].data;
  double std = a[2].number, *new = a[4].data, *public = a[5].data, square = 0.0, count = 1.0, noisy = 0.0;
  double *mean = means ? public + p->P + spans : NULL, *sums = mean ? mean + d : NULL;
  double *work = workspace(&held, d * k + k + (means ? S + d : 0));
  if (!work) return NULL;
  double *raw = means ? work + d * k + k : public;
  uint64_t name[2];
  memcpy(name, a[0].data, 16);
  if (!draw(p, name, args[1], args[2], a[1].number, grid_step(std), old, new, raw)) {
    PyMem_Free(work);
    drop(&held);
    return NULL;
  }
  if (means) {
    count = PICK(counted)(raw[S - 1], p->constant, a[6].number, a[7].number, &noisy);
    square = PICK(center)(raw, p->constant, count, a[8].number, public, sums, mean, d);
    for (int64_t j = 0; j < d; j++) mean[j] *= p->norm, sums[j] *= p->norm;
  }
  double *span = new + (3 + p->c) * S;
  if (p->tracking) {
    /* E lambda_max of noise of this standard deviation is at most std sqrt(2 D): the shift keeps the matrix nearly PSD. */
    PICK(power_step)(public, old + (3 + p->c) * S, std * sqrt(2.0 * (double)p->D), span, work, d, k);
    memcpy(public + p->P, span, sizeof(double) * (size_t)(d * k));
    PICK(scoring)(span, d, 1, of_unit(p, mean, raw + S), p->constant, span + d * k, d, k);
  } else
    memcpy(span, old + (3 + p->c) * S, sizeof(double) * (size_t)(d * k + p->score)); /* until `top` writes scoring */
  PyMem_Free(work);
  drop(&held);
  if (!means) return Py_NewRef(Py_None);
  return Py_BuildValue("ddd", std * (1.0 + 2.0 * (square < 1.0 ? square : 1.0) / p->weight2), count, noisy);
}

/* ---- records of a fleet ------------------------------------------------------------------------------------ */

/* A record, in words of 8 bytes; buffers follow the noise as in an arena:
 *
 *   number, order, n, t, bad, over | link 4 | exact sum S, integers of 2^-40 | packed S | noise S | buffers c S | span k d
 */
enum { NUMBER, ORDER, RELEASES, ROWS, BAD, OVER, LINK, HEAD = LINK + 4 };

/* Record i of an array of records, or NULL. */
static int64_t *record(const Plan *p, const Arg *records, int64_t i) {
  int64_t words = HEAD + (3 + p->c) * p->S + (p->tracking ? p->d * p->k : 0);
  return records->n % (8 * words) || i < 0 || i >= records->n / (8 * words) ? NULL : (int64_t *)records->data + i * words;
}

/* Add the products of a row on the lattice to a record, and count it. */
static void count_row(const Plan *p, const double *row, int64_t *one) {
  uint64_t steps[4097], *sum = (uint64_t *)one + HEAD;
  for (int64_t j = 0; j < p->D; j++) steps[j] = (uint64_t)(int64_t)(row[j] * LATTICE);
  for (int64_t i = 0, at = 0; i < p->D; i++)
    for (int64_t j = i; j < p->D; j++, at++) sum[at] += steps[i] * steps[j];
  one[ROWS]++;
}

/* push(row, factor, records, i) -> square: admit a row and add it to a record. None for anything but a vector of d
   doubles. A row that is not admitted as it is is not added. */
static PyObject *plan_push(PyObject *self, PyObject *const *args, Py_ssize_t given) {
  Plan *p = (Plan *)self;
  Arg a[3];
  Held held, row;
  double out[4097];
  if (given != 4) return PyErr_Format(PyExc_TypeError, "wrong number of arguments");
  if (!held_row(p, args[0], &row)) return Py_NewRef(Py_None);
  PyObject *made = NULL;
  if (parsed(args + 1, 3, "fyi", a, &held)) {
    int64_t *one = record(p, &a[1], a[2].integer);
    if (one) {
      double square = admitted(p, row.views->buf, a[0].number, out);
      if (square <= 1.0) count_row(p, out, one);
      drop(&held);
      made = PyFloat_FromDouble(square);
    } else
      refused(&held, "no such record");
  }
  drop(&row);
  return made;
}

/* add(rows, where, start, every, horizon, limit, records) -> the first row from start on that completes a release, or n.
   Row i is added to record where[i], or to ~where[i] as a bad row; beyond limit rows it is counted only. */
static PyObject *plan_add(PyObject *self, PyObject *const *args, Py_ssize_t given) {
  Plan *p = (Plan *)self;
  Arg a[7];
  Held held;
  if (!parsed(args, given, "Dliiiiy", a, &held)) return NULL;
  int64_t n = a[0].n, i = a[2].integer, every = a[3].integer;
  NEED(a[0].m == p->D && a[1].n == n && i >= 0 && every > 0);
  for (int due = 0; i < n; i += !due) {
    int64_t at = INTEGERS(1)[i], *one = record(p, &a[6], at < 0 ? ~at : at);
    NEED(one);
    if (one[ROWS] >= a[5].integer) {
      one[OVER]++;
      continue;
    }
    count_row(p, DOUBLES(0) + i * p->D, one);
    one[BAD] += at < 0;
    due = one[ROWS] % every == 0 || one[ROWS] == a[4].integer;
    if (due) break;
  }
  drop(&held);
  return PyLong_FromLongLong(i);
}

/* Whole units and rests of the exact sum of a record, 2 S. */
static void parts_of(const Plan *p, const int64_t *one, double *parts) {
  const int64_t *sum = one + HEAD;
  for (int64_t j = 0; j < p->S; j++) {
    parts[j] = (double)(sum[j] >> 40);
    parts[p->S + j] = (double)(sum[j] & 0xFFFFFFFFFF) * 0x1p-40;
  }
}

/* exact(records, i) -> bytes: the exact sum of a record, as `GramSum.parts`. */
static PyObject *plan_exact(PyObject *self, PyObject *const *args, Py_ssize_t given) {
  Plan *p = (Plan *)self;
  Arg a[2];
  Held held;
  if (!parsed(args, given, "xi", a, &held)) return NULL;
  const int64_t *one = record(p, &a[0], a[1].integer);
  NEED(one);
  PyObject *parts = PyBytes_FromStringAndSize(NULL, 16 * p->S);
  if (parts) parts_of(p, one, (double *)PyBytes_AsString(parts)); /* data of a bytes object are aligned */
  drop(&held);
  return parts;
}

/* publish(name, first, more, scale, std, link, order, rows, least, variance, records, i): the next release of a record.
   The arguments are those of release; link is the chain value, and order the number of the release in the fleet. */
static PyObject *plan_publish(PyObject *self, PyObject *const *args, Py_ssize_t given) {
  Plan *p = (Plan *)self;
  Arg a[10];
  Held held;
  if (!parsed_release(args, given, "xffxifffyi", a, &held)) return NULL;
  int64_t d = p->d, k = p->k, S = p->S, *one = record(p, &a[8], a[9].integer);
  NEED(one && a[0].n >= 16 && a[3].n >= 32);
  double std = a[2].number, *packed = (double *)one + HEAD + S, *noise = packed + S, *span = noise + (1 + p->c) * S;
  double *new = workspace(&held, p->arena + 2 * (d * k + d) + k);
  if (!new) return NULL;
  uint64_t name[2];
  memcpy(name, a[0].data, 16);
  parts_of(p, one, new);
  int good = draw(p, name, args[1], args[2], a[1].number, grid_step(std), noise - 2 * S, new, packed);
  if (good) {
    memcpy(noise, new + 2 * S, sizeof(double) * (size_t)((1 + p->c) * S));
    if (p->tracking) {
      double *work = new + p->arena, *next = work + d * k + k, *sums = next + d * k, noisy, *public = packed;
      for (int64_t c = 0; c < k && !one[RELEASES]; c++) span[c * d + c] = 1.0; /* the first axes */
      if (p->D > d) { /* the sums and the noise in the workspace are done with */
        double count = PICK(counted)(packed[S - 1], p->constant, a[5].number, a[6].number, &noisy);
        PICK(center)(packed, p->constant, count, a[7].number, public = new, sums, sums + d, d);
      }
      PICK(power_step)(public, span, std * sqrt(2.0 * (double)p->D), next, work, d, k);
      memcpy(span, next, sizeof(double) * (size_t)(d * k));
    }
    memcpy(one + LINK, a[3].data, 32);
    one[ORDER] = a[4].integer;
    one[RELEASES]++;
  }
  PyMem_Free(new);
  return good ? none(&held) : refused(&held, "");
}

/* top(packed, values, basis, new, mean or None) -> bool: certified top pairs, and scoring into a new arena. */
static PyObject *plan_top(PyObject *self, PyObject *const *args, Py_ssize_t given) {
  Plan *p = (Plan *)self;
  Arg a[5];
  Held held;
  int64_t d = p->d, k = p->k;
  if (given != 5) return PyErr_Format(PyExc_TypeError, "wrong number of arguments");
  if (!parsed(args, p->D > d ? 5 : 4, p->D > d ? "dwWyd" : "dwWy", a, &held)) return NULL;
  NEED(a[0].n == p->P && a[1].n == k && a[2].n == d && a[2].m == k && a[3].n == 8 * p->arena);
  NEED(p->D == d || a[4].n == d);
  double *work = workspace(&held, 2 * d * d + (13 + k) * d + 8 * k + 1);
  if (!work) return NULL;
  int found = PICK(top_pairs)(DOUBLES(0), DOUBLES(1), DOUBLES(2), work, d, k);
  if (found) {
    const double *mean = of_unit(p, p->D > d ? DOUBLES(4) : NULL, work);
    PICK(scoring)(DOUBLES(2), 1, k, mean, p->constant, DOUBLES(3) + p->arena - p->score, d, k);
  }
  PyMem_Free(work);
  drop(&held);
  return PyBool_FromLong(found);
}

#define METHOD(name) {#name, (PyCFunction)(void (*)(void))plan_##name, METH_FASTCALL, NULL}
static PyMethodDef plan_methods[] = {METHOD(take), METHOD(release), METHOD(top),     METHOD(push),
                                      METHOD(add),  METHOD(exact),   METHOD(publish), {NULL, NULL, 0, NULL}};
static PyType_Slot plan_slots[] = {
    {Py_tp_new, plan_new}, {Py_tp_dealloc, plan_free}, {Py_tp_methods, plan_methods}, {0, NULL}};
static PyType_Spec plan_spec = {"streampca._native.kernels.Plan", sizeof(Plan), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, plan_slots};
