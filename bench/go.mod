module github.com/gatehousehq/gatehouse/bench

go 1.26.0

replace github.com/gatehousehq/gatehouse => ..

require (
	github.com/gatehousehq/gatehouse v0.0.0
	github.com/valyala/fasthttp v1.68.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/andybalholm/brotli v1.2.0 // indirect
	github.com/klauspost/compress v1.20.1 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
)
