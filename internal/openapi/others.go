package openapi

// otherOperations are those of capacity and of the server itself.
func otherOperations() []Operation {
	// Every page of capacity can end in these ways.
	const page = "200 Page 400 Invalid 403 Forbidden 404 Missing 503 Unavailable"
	// The server's own pages are plain text for probes and scrapers.
	server := func(id, path, summary string) Operation {
		return Operation{ID: id, Tag: "server", Method: "get", Path: path, Summary: summary,
			Responses: parseResponses("200 Text 503 Unavailable")}
	}
	return []Operation{
		{
			ID: "getCapacity", Tag: "capacity", Method: "post", Path: "/v1/capacity/get",
			Summary: "Get leases",
			Description: "Asks for shares of any number of resources, in one request; the answer has " +
				"them in the same order. Ask again after refresh_interval, with the lease you have as " +
				"`has`. It is GetCapacity of doorman's protocol.",
			Body: &Body{"GetCapacity",
				`{"client_id": "me", "resource": [{"resource_id": "database", "wants": 3}]}`},
			Responses: parseResponses("200 Leases 400 Invalid 403 Forbidden 503 Unavailable"),
		},
		{
			ID: "releaseCapacity", Tag: "capacity", Method: "post", Path: "/v1/capacity/release",
			Summary:     "Give leases back",
			Description: "What is not held is no error. It is ReleaseCapacity of doorman's protocol.",
			Body:        &Body{"ReleaseCapacity", `{"client_id": "me", "resource_id": ["database"]}`},
			Responses:   parseResponses("200 Released 400 Invalid 403 Forbidden 503 Unavailable"),
		},
		{
			ID: "capacity", Tag: "capacity", Method: "get", Path: "/capacity",
			Summary:    "Show the server and its resources",
			Parameters: []string{"after", "format", "limit", "resource"}, Responses: parseResponses(page),
		},
		{
			ID: "capacityOfResource", Tag: "capacity", Method: "get", Path: "/capacity/{name}",
			Summary:    "Show a resource and its leases",
			Parameters: []string{"name", "after", "format", "limit"}, Responses: parseResponses(page),
		},
		server("healthz", "/healthz", "Is the server alive"),
		server("readyz", "/readyz", "Should requests be sent here"),
		server("wellKnownReady", "/.well-known/ready", "Should requests be sent here, as bouncer has it"),
		server("metrics", "/metrics", "Statistics for Prometheus"),
	}
}
