use super::*;

/// All values of `$ref`.
fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|field| references(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn every_component_is_there_and_in_use() {
    let description = description(true);
    let mut found = BTreeSet::new();
    references(&description, &mut found);
    for reference in &found {
        assert!(description.pointer(&reference[1..]).is_some(), "{reference}");
    }
    for kind in ["parameters", "responses", "schemas"] {
        for name in description["components"][kind].as_object().unwrap().keys() {
            assert!(found.contains(format!("#/components/{kind}/{name}").as_str()), "{kind} {name}");
        }
    }
}

#[test]
fn every_row_of_the_table_is_an_operation_of_its_own() {
    let description = description(true);
    let mut ids = BTreeSet::new();
    for route in ROUTES {
        for method in route.methods.iter().filter(|method| **method != Method::HEAD) {
            let operation = &description["paths"][route.path][method.as_str().to_ascii_lowercase()];
            assert!(!operation["summary"].as_str().unwrap().is_empty(), "{method} {}", route.path);
            assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{method} {}", route.path);
        }
    }
}

#[test]
fn security_is_that_of_the_server_and_of_its_public_paths() {
    let [locked, open] = [true, false].map(description);
    assert_eq!(locked["security"][0], json!({ "bearer": [] }));
    assert_eq!(open["security"], json!([]));
    let load = &locked["paths"]["/models/load"]["post"];
    assert_eq!(load["description"], "A named key needs the right `change`.");
    assert_eq!(load["responses"]["401"]["$ref"], "#/components/responses/Error");
    assert_eq!(locked["paths"]["/health"]["get"]["security"], json!([]));
    assert_eq!(locked["paths"]["/health"]["get"]["responses"].get("401"), None);
}

#[test]
fn errors_have_the_shape_of_the_api_that_the_path_belongs_to() {
    let description = description(true);
    for (path, method, name) in [
        ("/api/show", "post", "OllamaError"),
        ("/api/status", "get", "Error"),
        ("/v1/chat/completions", "post", "EngineError"),
    ] {
        let refused = &description["paths"][path][method]["responses"]["403"]["$ref"];
        assert_eq!(*refused, format!("#/components/responses/{name}"), "{path}");
    }
}
