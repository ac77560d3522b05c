"""What a process says of itself: to whoever asks `/status`, and in gauges."""

from typing import Any

from app.house import House


def status(house: House) -> dict[str, Any]:
    """For `/status` on the admin port."""
    survey = house.survey
    if survey is None:
        return {"ready": False}
    return {
        "ready": survey.ready,
        "limiter": house.limiter.mode if house.limiter else "degraded",
        "limiter_trouble": house.limiter.trouble if house.limiter else "",
        "replicas": house.limiter.replicas if house.limiter else 1,
        "files": _reloads(house),
        "issuers": {name: {"keys": len(keys), "failures": keys.failures} for name, keys in house.jwks()},
        "endpoints": [
            {
                "address": endpoint.address,
                "reachable": endpoint.health.reachable,
                "version": endpoint.version,
                "serving": sorted(endpoint.health.serving),
                "out": endpoint.health.out,
            }
            for endpoint in survey.roster.endpoints
        ],
        "routes": {
            name: {
                "served": bool(serving.ensembles),
                "required": serving.route.required,
                "faults": list(serving.faults),
                "remarks": serving.remarks(),
            }
            for name, serving in survey.table.servings.items()
        },
    }


def read_gauges(house: House) -> None:
    metrics, survey = house.metrics, house.survey
    if survey is None or house.limiter is None:
        return
    metrics.limiter_degraded.set(house.limiter.mode == "degraded")
    metrics.replicas.set(house.limiter.replicas)
    metrics.show_endpoints({e.address: (e.health.reachable, e.health.checked, e.health.out) for e in survey.roster.endpoints})
    servings = survey.table.servings
    metrics.ready.set(house.ready())
    metrics.routes_served.set(sum(bool(serving.ensembles) for serving in servings.values()))
    metrics.show_models((name, bool(each.ensembles), each.route.required) for name, each in servings.items())
    for name, bulkhead in house.bulkheads.items():
        metrics.berths.labels(name).set(bulkhead.berths)
        metrics.taken.labels(name).set(bulkhead.taken)
        metrics.waiting.labels(name).set(bulkhead.waiting)
    for file, reloads in _reloads(house).items():
        metrics.generation.labels(file).set(reloads["generation"])
        metrics.reload_failures.labels(file).set(reloads["failures"])
        metrics.refused.labels(file).set(bool(reloads["refused"]))
    metrics.jwks_failures.clear()
    for name, keys in house.jwks():
        metrics.jwks_failures.labels(name).set(keys.failures)


def _reloads(house: House) -> dict[str, dict[str, Any]]:
    """Of each file that is read again while the process runs."""
    editions = {"tenants": house.directory, "tokens": house.issuers}
    told = {file: _told(each.generation, each.failures, each.refused) for file, each in editions.items() if each}
    if survey := house.survey:
        told["routes"] = _told(survey.generation, survey.reload_failures, survey.refused)
    return told


def _told(generation: int, failures: int, refused: str) -> dict[str, Any]:
    return {"generation": generation, "failures": failures, "refused": refused}
