# Every target builds its environment from the project's own files first; nothing else to install by hand.
PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= dev
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# One BLAS thread a process: the matrices are small, and threads of several processes get in each other's way.
export OPENBLAS_NUM_THREADS ?= 1
export OMP_NUM_THREADS ?= 1
# Modules are compiled once, not by every process of the tests, also where the environment asks for that.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-ci test-numpy test-python test-sanitized test-lowest test-edits test-killed audit-share lint bench profile \
  audit sbom docs release clean

# An environment, and the project with its extras in it. uv installs in seconds what takes pip minutes.
define install
	$(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install --quiet --disable-pip-version-check uv
	VIRTUAL_ENV=$(1) $(1)/bin/uv pip install --quiet --editable '.[$(2)]'
	touch $@
endef

$(STAMP): pyproject.toml hatch_build.py streampca/_native/module.c streampca/_native/kernels.h streampca/_native/plan.h
	$(call install,$(VENV),$(EXTRAS))

demo: $(STAMP)
	$(BIN)/streampca demo

test: $(STAMP)
	$(BIN)/python -m pytest -n auto

# What takes longer, and CI runs too: planted bugs, audits from outside, Spark, scenarios.
test-ci: $(STAMP)
	$(BIN)/python -m pytest -n auto -m 'ci and not long'

# Tests of one module or algorithm at a time.
UNIT_TESTS := $(addprefix tests/,native linalg privacy matrix_factorization mechanisms processors conformance queries planning)

# The unit tests as they run where nothing is compiled.
test-numpy: $(STAMP)
	STREAMPCA_KERNELS=numpy $(BIN)/python -m pytest -n auto $(UNIT_TESTS) tests/stream tests/regret

# What may differ in another Python: conformance, interrupts and threads, and the ways of rows into a stream. The rest
# is arithmetic, which two sets of versions compute already, or that of stores, pages and the auditor.
PYTHON_TESTS := $(addprefix tests/,native privacy conformance core cli facade integrations neighbours rows sources stream)
test-python: $(STAMP)
	$(BIN)/python -m pytest -n auto $(PYTHON_TESTS) tests/test_*.py

# The compiled kernels under AddressSanitizer and UndefinedBehaviorSanitizer: their tests, and CALLS random calls.
CALLS ?= 50000
SANITIZE := -O1 -g -std=gnu11 -ffp-contract=off -fsanitize=address,undefined -fno-sanitize-recover=undefined -fPIC -shared
test-sanitized: $(STAMP)
	rm -rf out/sanitized && mkdir -p out/sanitized && cp -r streampca tests pyproject.toml README.md LICENSE out/sanitized
	cc $(SANITIZE) -I$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))') \
	  streampca/_native/module.c -o out/sanitized/streampca/_native/kernels.abi3.so -lm
	cd out/sanitized && export ASAN_OPTIONS=detect_leaks=0 && \
	  export LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libubsan.so)" && \
	  ../../$(BIN)/python tests/native/fuzz.py $(CALLS) && \
	  ../../$(BIN)/python -m pytest tests/native tests/stream/test_lane.py

# Neighboring tables through every door: 20 000 edits of one record, none of which shows.
test-edits: $(STAMP)
	$(BIN)/python -W ignore tests/neighbours/record_edits.py --edits 20000

# A Structured Streaming query that is killed: three Spark sessions, so not among the tests of `test-ci`.
test-killed: $(STAMP)
	$(BIN)/python -m pytest -m long tests/integrations/test_spark.py -k 'killed_driver and rows'

# A tenth of the audit: what the change touched first, then by the hash of the commit. Some 8 CPU minutes.
audit-share: $(STAMP)
	$(BIN)/python tests/auditing/ci_share.py

# The unit tests with the lowest versions of the dependencies that pyproject.toml allows, and test tools of today: with
# numpy's kernels, and what tests the compiled ones with these.
test-lowest: $(STAMP)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)-lowest
	VIRTUAL_ENV=$(VENV)-lowest $(BIN)/uv pip install --quiet --resolution lowest-direct \
	  --editable '.[accounting,demo,parquet,report,serve,sklearn]'
	VIRTUAL_ENV=$(VENV)-lowest $(BIN)/uv pip install --quiet hypothesis 'polars<2' pytest pytest-xdist
	STREAMPCA_KERNELS=numpy $(VENV)-lowest/bin/python -m pytest -n auto $(UNIT_TESTS)
	$(VENV)-lowest/bin/python -m pytest -n auto tests/native tests/conformance tests/stream/test_lane.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell *.md docs scenarios streampca tests

bench: $(STAMP)
	$(BIN)/python scenarios/bench.py

# Where the time of a row goes, by function. A profiler slows calls and not arithmetic: only the order is meaningful.
profile: $(STAMP)
	$(BIN)/python -m cProfile -s tottime scenarios/bench.py row --rounds 1

audit: $(STAMP)
	$(BIN)/streampca audit --all
	$(BIN)/python -m pytest -m '' tests/auditing/test_suite.py -k planted

# Every package of the environment, as CycloneDX JSON.
sbom: $(STAMP)
	mkdir -p out
	$(BIN)/uvx --quiet --from cyclonedx-bom cyclonedx-py environment $(VENV) --output-file out/sbom.json

$(VENV)-docs/.installed: pyproject.toml hatch_build.py
	$(call install,$(VENV)-docs,docs)

# The pages of docs/ into out/site: warnings are errors, and code is run. Outputs of unchanged pages are in out/docs-run.
docs: $(VENV)-docs/.installed
	$(VENV)-docs/bin/python -m sphinx -q -W --keep-going -j auto docs out/site

# Builds twice with equal bytes, checks the files, tests the wheel in an environment without the source; stops before
# the upload.
release: $(STAMP)
	rm -rf dist out/again out/release
	mkdir -p out/release
	$(BIN)/python -m hatchling build -d dist
	$(BIN)/python -m hatchling build -d out/again
	cmp dist/*.whl out/again/*.whl
	$(BIN)/uvx --quiet twine check --strict dist/*
	$(BIN)/uvx --quiet check-wheel-contents dist/*.whl
	$(BIN)/uvx --quiet abi3audit --strict dist/*.whl
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)-release
	VIRTUAL_ENV=$(VENV)-release $(BIN)/uv pip install --quiet "$$(echo dist/*.whl)[accounting,parquet,report,sklearn]" \
	  hypothesis 'polars<2' pytest pytest-xdist
	tar -xzf dist/*.tar.gz -C out/release --strip-components=1 --exclude='*/streampca/*'
	cd out/release && ../../$(VENV)-release/bin/pytest -n auto $(UNIT_TESTS) tests/integrations/test_sklearn_pca.py
	$(VENV)-release/bin/streampca version
	@echo 'dist/ is built and tested. Nothing was uploaded. Check the addresses in pyproject.toml, tag the commit, then:'
	@echo '  uvx twine upload dist/*'

clean:
	rm -rf $(VENV) $(VENV)-* out build dist docs/gallery docs/api/reference
