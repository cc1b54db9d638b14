"""The table of words that `plimsoll doctor` compares a report with: crates/doctor/src/classifier/words.tsv.

usage: train.py --out words.tsv [--sources reports.tsv] FOLDER...
       train.py --prior words.tsv --out words.tsv FOLDER...     fits the weights of a table further, with new reports
       train.py --check FOLDER... --without FOLDER      how often the table made of the others names the cause of this one's reports
Each FOLDER holds reports as JSON, one a file, with `log`, `context`, `platform`, `cause` and `url`. The reports are public threads; their texts are not
kept here; `reports.tsv` has causes and addresses, of those whose address was noted (573 of 1292). A multinomial logistic regression over words: 1 + ln of how often a word stands there, times its
inverse document frequency, the whole of length 1. Words of fewer than three reports are left out. Needs scikit-learn.
"""

import argparse
import collections
import glob
import io
import json
import math
import re
import sys

import numpy
import scipy.optimize
import scipy.special
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

# Runs of two or more letters, none of them behind a digit: neither addresses nor sizes. classifier.rs has the same.
WORD = r"(?<![0-9a-z])[a-z]{2,}"
# Words of grammar are of no kind of report.
GRAMMAR = ("the of to and in is it that this for on with as at by be are was were an or from but so if then than there here they them their its we he "
           "she my your our has have had do does did been being which what when where who how also just only some any other such very too can will would "
           "should could may might must about into over under again more most same own you i").split()
# Nor are months and the name that stands for a host: they come from the prefixes of logs.
GRAMMAR += "jan feb mar apr jun jul aug sep oct nov dec mon tue wed thu fri sat sun box".split()
# What journald, syslog, Docker, Kubernetes, the kernel or a logger puts before a line. log_prefix.rs has the same forms.
CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
DATE = r"\d{4}[-/]\d\d[-/]\d\d"
DAY = r"(?:mon|tue|wed|thu|fri|sat|sun),? +"
MONTH = rf"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec) +\d\d?(?: \d{{4}})? {CLOCK}"
LEVEL = r"(?:trace|debug|info|notice|warn|warning|error|critical|fatal)\b"
UNIT = rf"(?!{LEVEL})[\w.-]+ [\w.@/()+-]+(?:\[\d+\])?:(?: |$)"
PREFIXES = [re.compile(form) for form in (
    r'\{"log":"(?=.*","stream":")',
    r"[a-z0-9_.-]*[-_]\d+ +\| ?",
    r"<\d{1,3}>1 \S+ \S+ \S+ \S+ \S+ (?:-|\[.*?(?:\"\]|\]))",
    r"<\d{1,3}>(?!1 )",
    rf"\[ *\d+\.\d+\](?: *[\w.-]+ (?:kernel|[\w.@/()+-]+\[\d+\]): )?",
    r"\[ *[tc]\d+\]",
    rf"\[(?:{DATE}[t ]{CLOCK}(?:z|[+-][\d:]+)?|(?:{DAY})?{MONTH}(?: [a-z]{{3,5}})?(?: \d{{4}})?)\]",
    r"[a-z]{3,7} *:[a-z]{3,7} *:(?= \[)",
    rf"(?:{DATE}t{CLOCK}[+-][\d:]*\d|{DAY}{DATE}[t ]{CLOCK}(?: [a-z]{{3,5}})?|(?:{DAY})?{MONTH}(?: \d{{4}})?|\d{{10}}\.\d{{3,}}) +{UNIT}",
    rf"(?:{DATE}[t ]{CLOCK}(?:z|[+-][\d:]*\d)?|(?:{DAY})?{MONTH}(?: [a-z]{{3,5}}(?= \d{{4}}))?(?: \d{{4}})?)(?: *std(?:out|err) [fp] )?")]
NESTED = 4
FEWEST_REPORTS = 3
STRENGTH = 10
# How little the biases of a table may move when it is fitted further.
BIAS = 1
CAUSES = {"model_too_large", "kv_cache_too_large", "compute_buffer_too_large", "pool_growth", "foreign_process", "wrong_device_context", "unified_memory_refused",
          "host_pinned_limit", "fragmentation_caching_allocator", "nvml_assert_masks_oom", "unified_memory_thrash", "driver_or_hw", "leak", "not_oom", "other"}
# The table has whole numbers: so many to 1.
WEIGHTS, FREQUENCIES = 10, 100


def words_of(value):
    return value if isinstance(value, str) else json.dumps(value) if value else ""


def without_prefix(line):
    """The line, in lower case, as its program printed it."""
    for _ in range(NESTED):
        line = line.lstrip()
        found = next(filter(None, (form.match(line) for form in PREFIXES)), None)
        if not found:
            break
        if line.startswith('{"log":"'):
            line = line[:line.rindex('","stream":"')].removesuffix("\\n")
        line = line[found.end():]
    return line


def reports(folders, known=()):
    """Each report once: its text, cause and address."""
    seen = set(known)
    for path in sorted(path for folder in folders for path in glob.glob(f"{folder}/*.json")):
        with open(path) as file:
            report = json.load(file)
        if not isinstance(report.get("log"), str) or report.get("cause") not in CAUSES or report["log"][:200] in seen:
            continue
        seen.add(report["log"][:200])
        text = "\n".join(words_of(report.get(field)) for field in ("log", "context", "platform")).lower()
        text = "\n".join(map(without_prefix, text.split("\n")))
        yield text, report["cause"], report.get("url") or "", report["log"][:200]


def fitted(rows):
    vectors = TfidfVectorizer(min_df=FEWEST_REPORTS, sublinear_tf=True, token_pattern=WORD, stop_words=GRAMMAR)
    model = LogisticRegression(C=STRENGTH, max_iter=3000, class_weight="balanced")
    model.fit(vectors.fit_transform([text for text, *_ in rows]), [cause for _, cause, *_ in rows])
    model.coef_ = numpy.round(model.coef_ * WEIGHTS) / WEIGHTS
    return vectors, model


def fitted_further(table, rows, out):
    """The table with the weights that explain further reports, as near to its own as the strength of the first fit demands. No word is added."""
    with open(table) as file:
        head, bias, *words = [line.rstrip("\n").split("\t") for line in file]
    place = {word[0]: index for index, word in enumerate(words)}
    frequencies = numpy.array([int(word[1]) / FREQUENCIES for word in words])
    first = numpy.array([[int(weight) / WEIGHTS for weight in word[2:]] for word in [*words, bias]])
    texts = numpy.zeros((len(rows), len(words) + 1))
    for text, row in zip(texts, rows):
        for word, count in collections.Counter(re.findall(WORD, row[0])).items():
            if word in place:
                text[place[word]] = (1 + math.log(count)) * frequencies[place[word]]
        text /= numpy.linalg.norm(text) or 1
    texts[:, -1] = 1
    named = numpy.array([[row[1] == cause for cause in head[2:]] for row in rows], float)
    stiffness = numpy.array([[1 / STRENGTH]] * len(words) + [[BIAS]])

    def loss(flat):
        weights = flat.reshape(first.shape)
        sums = texts @ weights
        shares = scipy.special.softmax(sums, axis=1)
        moved = weights - first
        slope = texts.T @ (shares - named) + stiffness * moved
        return (stiffness * moved**2).sum() / 2 - (named * scipy.special.log_softmax(sums, axis=1)).sum(), slope.ravel()

    best = scipy.optimize.minimize(loss, first.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 300}).x.reshape(first.shape)
    for cells, weights in zip([head, bias, *words], [None, best[-1], *best[:-1]]):
        print(*(cells if weights is None else [*cells[:2], *(round(weight * WEIGHTS) for weight in weights)]), sep="\t", file=out)


def written(vectors, model, out):
    def row(name, frequency, weights):
        print(name, round(frequency * FREQUENCIES), *(round(weight * WEIGHTS) for weight in weights), sep="\t", file=out)
    print("word", "frequency", *model.classes_, sep="\t", file=out)
    row("", 0, model.intercept_)
    for index, word in enumerate(vectors.get_feature_names_out()):
        row(word, vectors.idf_[index], model.coef_[:, index])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--out")
    parser.add_argument("--prior")
    parser.add_argument("--sources")
    parser.add_argument("--without", "--check", dest="without")
    options = parser.parse_args()
    if options.without:
        held = list(reports([options.without]))
        others = [folder for folder in options.folders if folder.rstrip("/") != options.without.rstrip("/")]
        vectors, model = fitted(list(reports(others, {row[3] for row in held})))
        named = model.predict(vectors.transform([text for text, *_ in held]))
        right = sum(cause == row[1] for cause, row in zip(named, held))
        return print(f"{right} of {len(held)}")
    if not options.out:
        sys.exit("--out FILE or --without FOLDER is needed")
    rows = list(reports(options.folders))
    table = io.StringIO()
    if options.prior:
        fitted_further(options.prior, rows, table)
    else:
        written(*fitted(rows), table)
    with open(options.out, "w") as out:
        out.write(table.getvalue())
    if options.sources:
        with open(options.sources, "w") as out:
            print("cause", "address", sep="\t", file=out)
            for _, cause, address, _ in sorted(rows, key=lambda row: (row[1], row[2])):
                if address.startswith("http"):
                    print(cause, address, sep="\t", file=out)
    print(f"{len(rows)} reports", file=sys.stderr)


if __name__ == "__main__":
    main()
